// Conversion of Dockerfiles to plans of a template build.
// biome-ignore-all lint/suspicious/noTemplateCurlyInString: variables of a Dockerfile are spelled so
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { planFromDockerfile } from "@svc/contract/dockerfile.ts";
import { quoted } from "@svc/contract/dockerfile-words.ts";
import fc from "fast-check";

const steps = (text: string, buildArgs?: Record<string, string>) => planFromDockerfile(text, { buildArgs }).steps.map(({ type, args }) => [type, ...args]);
const refused = (text: string, says: RegExp) => assert.throws(() => planFromDockerfile(text), says);

void describe("a Dockerfile", () => {
  void test("becomes steps in its order, continued lines as one, comments and blank lines left out", () => {
    const text =
      '# syntax=x\nFROM python:3\n\n# note\nRUN apt-get update && \\\n  # why\n\n  apt-get install -y x\nworkdir /app\nUSER  me\nENV A=1 B="two words"\nENV C the rest\n';
    assert.equal(planFromDockerfile(text).fromImage, "python:3");
    assert.deepEqual(steps(text), [
      ["RUN", "apt-get update &&   apt-get install -y x"],
      ["WORKDIR", "/app"],
      ["USER", "me"],
      ["ENV", "A", "1", "B", "two words"],
      ["ENV", "C", "the rest"],
    ]);
  });

  void test("copies as root unless it names an owner, each source as a step of its own", () => {
    const text = 'FROM a\nCOPY a b /dest\nCOPY --chown=me:us --chmod=755 ["x y", "/z/"]\nADD --chmod=0644 . .\n';
    assert.deepEqual(steps(text), [
      ["COPY", "a", "/dest/", "root", ""],
      ["COPY", "b", "/dest/", "root", ""],
      ["COPY", "x y", "/z/", "me:us", "0755"],
      ["COPY", ".", ".", "root", "0644"],
    ]);
  });

  void test("replaces ARGs and its own variables, and leaves those of the image to the server", () => {
    const text =
      "ARG TAG=3\nFROM python:${TAG}\nARG TAG\nARG DIR=/opt\nENV HOME_DIR=$DIR/home PATH=$PATH:$DIR/bin\nWORKDIR ${HOME_DIR}\nCOPY a ${NOPE:-x}/$DIR/\nRUN echo $DIR \\$x '$y'\n";
    assert.equal(planFromDockerfile(text, { buildArgs: { TAG: "4" } }).fromImage, "python:4");
    assert.deepEqual(steps(text), [
      ["ENV", "HOME_DIR", "/opt/home", "PATH", "$PATH:/opt/bin"],
      ["WORKDIR", "/opt/home"],
      ["COPY", "a", "${NOPE:-x}//opt/", "root", ""],
      ["RUN", "export TAG=3 DIR=/opt; echo $DIR \\$x '$y'"],
    ]);
  });

  void test("combines ENTRYPOINT and CMD into one start command", () => {
    const start = (rest: string) => planFromDockerfile(`FROM a\n${rest}`).startCmd;
    assert.equal(start("CMD python app.py"), "python app.py");
    assert.equal(start('CMD ["python", "my app.py"]'), "python 'my app.py'");
    assert.equal(start('ENTRYPOINT ["a"]\nCMD ["b", "c"]'), "a b c");
    assert.equal(start('CMD ["b"]\nENTRYPOINT ["a"]'), "a");
    assert.equal(start('ENTRYPOINT run it\nCMD ["b"]'), "run it");
    assert.equal(start("RUN true"), undefined);
  });

  void test("lists what is left out, and is refused with the line and a reason if it cannot be built", () => {
    assert.match(planFromDockerfile("FROM a\nEXPOSE 80\nLABEL x=y").notes.join("\n"), /line 2: EXPOSE is left out.*\n.*line 3: LABEL/);
    refused("RUN x", /line 1: RUN: FROM comes first/);
    refused("", /has no FROM/);
    refused("FROM a\nRUN <<EOF\nx", /line 2: RUN: the here-document EOF has no end/);
    refused("FROM a\nRUN --mount=type=bind,from=b true", /--mount=type=bind,from=b is not offered/);
    refused("FROM a\nRUN --mount=type=secret true", /expected id=NAME/);
    refused("FROM a\nCOPY https://x/y z", /only ADD fetches URLs/);
    refused("FROM a\nSHELL sh", /expected the JSON form/);
    refused("FROM a\nONBUILD RUN x", /write the instruction where it shall run/);
    refused("FROM a\nHEALTHCHECK curl x", /expected CMD with a command/);
    assert.throws(() => planFromDockerfile("FROM a AS one\nFROM b", { target: "two" }), /no stage 'two'; its stages are one, 1/);
    refused("FROM a\nCOPY ../x y", /outside the context/);
    refused("FROM scratch", /needs a root/);
    refused("FROM a\nFLY x", /there is no such instruction/);
    refused("FROM a\nENV 1A=b", /'1A' is not the name/);
  });

  void test("builds the stages that the last one needs, numbered again, and takes files of stages and images", () => {
    const text =
      "FROM golang AS build\nRUN make\nFROM node AS unused\nRUN npm ci\nFROM build AS test\nRUN check\nFROM debian\nCOPY --from=build /out/app /usr/bin/\nCOPY --from=2 --chown=me x y\nCOPY --from=nginx:1 /etc/nginx /n";
    const plan = planFromDockerfile(text);
    assert.equal(plan.fromImage, "golang");
    assert.deepEqual(
      plan.steps.map(({ type, args, from }) => [type, ...args, ...(from === undefined ? [] : [`<${from}>`])]),
      [
        ["RUN", "make"],
        ["FROM", "stage:0"],
        ["RUN", "check"],
        ["FROM", "debian"],
        ["COPY", "/out/app", "/usr/bin/", "", "", "<stage:0>"],
        ["COPY", "/x", "y", "me", "", "<stage:1>"],
        ["COPY", "/etc/nginx", "/n", "", "", "<nginx:1>"],
      ],
    );
    assert.deepEqual(
      planFromDockerfile(text, { target: "unused" }).steps.map(({ args }) => args[0]),
      ["npm ci"],
    );
  });

  void test("takes here-documents, SHELL, HEALTHCHECK and secrets", () => {
    const run = (rest: string) => planFromDockerfile(`FROM a\n${rest}`).steps.at(-1);
    assert.deepEqual(run("RUN <<EOF\nset -e\necho $x '#y'\nEOF")?.args, ["set -e\necho $x '#y'\n"]);
    assert.deepEqual(run("RUN cat <<-A > /f && sort <<B\n\tone\n\tA\ntwo\nB")?.args, ["cat <<-A > /f && sort <<B\none\nA\ntwo\nB\n"]);
    assert.match(run("RUN <<E\n#!/usr/bin/env python3\nprint(1)\nE")?.args[0] ?? "", /mktemp.*printf %s '#!\/usr\/bin\/env python3\nprint\(1\)\n'/s);
    assert.deepEqual(run('SHELL ["/bin/ash", "-ec"]\nRUN a && b')?.args, ["/bin/ash -ec 'a && b'"]);
    assert.deepEqual(run('SHELL ["/bin/ash", "-ec"]\nRUN ["a", "b c"]')?.args, ["a 'b c'"]);
    assert.deepEqual(run("RUN --mount=type=secret,id=token,target=/t,required x")?.secrets, [{ id: "token", target: "/t", required: true }]);
    const plan = planFromDockerfile("FROM a\nHEALTHCHECK --interval=5s CMD curl -f localhost || exit 1\nCMD serve");
    assert.deepEqual([plan.startCmd, plan.readyCmd], ["serve", "curl -f localhost || exit 1"]);
    assert.equal(planFromDockerfile("FROM a\nHEALTHCHECK CMD x\nHEALTHCHECK NONE\nCMD serve").readyCmd, undefined);
    assert.match(planFromDockerfile("FROM a\nHEALTHCHECK CMD x").notes.join(), /no command that it could wait for/);
  });

  void test("gives every value of ENV as it was quoted, whatever is in it", () => {
    const value = fc.string({ unit: fc.constantFrom("a", " ", "'", "\\", "#", "=", "{", "}", "ä", "\t") });
    fc.assert(
      fc.property(value, (text) => {
        const single = `FROM a\nENV A='${text.replaceAll("'", "x")}' B=2`;
        assert.deepEqual(steps(single), [["ENV", "A", text.replaceAll("'", "x"), "B", "2"]]);
        const double = `FROM a\nENV A="${text.replace(/[\\"]/g, "\\$&")}"`;
        assert.deepEqual(steps(double), [["ENV", "A", text]]);
      }),
    );
  });

  void test("quotes words so that a shell reads them back", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme" }), (word) => {
        const shown = quoted(word);
        const read =
          shown.startsWith("'") || shown.includes("'")
            ? shown.replace(/'([^']*)'|\\(.)/g, (_, inside?: string, escaped?: string) => inside ?? escaped ?? "")
            : shown;
        assert.equal(read, word);
      }),
    );
  });

  void test("fails only with a refusal, whatever its text", () => {
    const line = fc.array(
      fc.constantFrom("FROM", "RUN", "COPY", "ENV", "ARG", "CMD", "a=b", "$A", "${B:-c}", "\\", '"', "'", "[", "]", "--x=y", "/d", "#", "\n", " "),
      { maxLength: 30 },
    );
    fc.assert(
      fc.property(line, (words) => {
        try {
          planFromDockerfile(`FROM a\n${words.join(" ")}`);
        } catch (error) {
          assert.equal((error as Error).name, "INVALID_REQUEST");
        }
      }),
    );
  });
});
