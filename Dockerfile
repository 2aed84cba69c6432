# memagent with what reading documents needs: any OpenAI-compatible server, weights on disk, and the embedded model.
#
#   docker build -t memagent .
#   docker run --rm -v "$PWD:/documents" -v memagent:/journal memagent ask contract.txt -q "Who may terminate?" \
#       --model NAME --base-url http://host.docker.internal:8000/v1
FROM python:3.12-slim

# The CPU build of torch, first and alone: nothing later may pull in another one.
RUN pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu torch

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir '.[local,documents,eval]' && rm -rf /src/*

RUN useradd --create-home reader && mkdir /documents /journal && chown reader /documents /journal
USER reader
ENV MEMAGENT_HOME=/journal
VOLUME /journal
WORKDIR /documents
ENTRYPOINT ["memagent"]
