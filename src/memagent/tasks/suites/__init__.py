"""Files of published evaluation suites, turned into sample files: records · one module a suite · catalog · importing."""
