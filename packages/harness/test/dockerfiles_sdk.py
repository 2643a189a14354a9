# Builds the Dockerfiles of a JSON list by the E2B Python SDK's own translation, and prints what a sandbox of each template shows.
import json
import os
import sys

from e2b import Sandbox, Template


def outcome(example):
    os.chdir(example["context"])
    try:
        Template.build(Template(file_context_path=example["context"]).from_dockerfile(example["dockerfile"]), example["name"])
        sandbox = Sandbox.create(example["name"], timeout=600)
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    try:
        return {"shows": sandbox.commands.run(example["command"]).stdout}
    except Exception as error:
        return {"refused": f"{type(error).__name__}: {error}"}
    finally:
        sandbox.kill()


print(json.dumps([outcome(example) for example in json.load(open(os.environ["SVC_TEST_DOCKERFILES"]))]), file=sys.__stdout__)
