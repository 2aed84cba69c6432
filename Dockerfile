# memagent as a command, with what reading documents needs: any OpenAI-compatible server, weights on disk, and the embedded
# model. (The last stage: what is built if none is named.)
#
#   docker build -t memagent .
#   docker run --rm -v "$PWD:/documents" -v memagent:/journal memagent ask contract.txt -q "Who may terminate?" \
#       --model NAME --base-url http://host.docker.internal:8000/v1
#
# memagent as a service, in front of a model server; deploy/compose.yaml has both.
#
#   docker build -t memagent-service --target service .
#   docker run --rm -p 127.0.0.1:8600:8600 -v memagent:/data -v "$PWD/keys.txt:/run/secrets/keys:ro" memagent-service \
#       --model NAME --base-url http://host.docker.internal:8000/v1
FROM python:3.12-slim AS source
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN useradd --create-home --uid 1000 reader

FROM source AS service
RUN pip install --no-cache-dir '.[serve,mcp,otel,documents]' && rm -rf /src/*
RUN install --directory --owner reader --mode 0700 /data
USER reader
ENV MEMAGENT_HOME=/data
VOLUME /data
WORKDIR /data
EXPOSE 8600
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8600/health', timeout=3)"]
ENTRYPOINT ["memagent", "serve", "--host", "0.0.0.0", "--port", "8600", "--keys", "/run/secrets/keys", "--log-format", "json"]

FROM source
# The CPU build of torch, first and alone: nothing later may pull in another one.
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu torch
RUN pip install --no-cache-dir '.[local,documents,eval]' && rm -rf /src/*
RUN mkdir /documents /journal && chown reader /documents /journal
USER reader
ENV MEMAGENT_HOME=/journal
VOLUME /journal
WORKDIR /documents
ENTRYPOINT ["memagent"]
