// Twenty Dockerfiles as people write them, each with the files of its context and what a sandbox of its template shows.

export type Example = {
  readonly name: string;
  readonly dockerfile: string;
  readonly files?: Readonly<Record<string, string>>;
  /** Further words of `svc template build`. */
  readonly flags?: readonly string[];
  /** Run in a sandbox of the template, as its user and in its folder. */
  readonly command: string;
  readonly shows: string;
};

/** `tiny` is an image with busybox, `tools` one with files below /opt/tools. */
export const examples: readonly Example[] = [
  {
    name: "multi-stage",
    dockerfile: `FROM tiny AS build
WORKDIR /src
COPY main.c .
RUN tr a-z A-Z < main.c > app && chmod 755 app && chown 4321 app && ln -s app latest
FROM tiny
COPY --from=build /src/app /usr/local/bin/app
COPY --from=build /src/latest /tmp/linked
COPY --from=build --chown=0:0 --chmod=700 /src/ /copy/`,
    files: { "main.c": "int main\n" },
    command: "cat /usr/local/bin/app /tmp/linked; stat -c '%u %a' /usr/local/bin/app /copy; ls -d /src 2>&1 | grep -c 'No such'",
    shows: "INT MAIN\nINT MAIN\n4321 755\n0 700\n1\n",
  },
  {
    name: "stage-on-stage",
    dockerfile: `FROM tiny AS base
ENV LEVEL=base KEPT=yes
WORKDIR /work
RUN echo one > log
FROM base AS unused
RUN exit 9
FROM base
ENV LEVEL=top
RUN echo $LEVEL $KEPT >> log`,
    command: "cat log; echo $LEVEL; pwd",
    shows: "one\ntop yes\ntop\n/work\n",
  },
  {
    name: "from-image",
    dockerfile: `FROM tiny
COPY --from=tools /opt/tools /opt/
COPY --from=tools /opt/tools/a* /letters/`,
    command: "ls /opt /letters",
    shows: "/letters:\nabc\n\n/opt:\nabc\nxyz\n",
  },
  {
    name: "numbered-stage",
    dockerfile: "FROM tiny\nRUN echo zero > /zero\nFROM tiny\nRUN echo one > /one\nFROM tiny\nCOPY --from=0 /zero /\nCOPY --from=1 /one /",
    command: "cat /zero /one",
    shows: "zero\none\n",
  },
  {
    name: "target",
    flags: ["--target", "middle"],
    dockerfile: "FROM tiny AS first\nRUN echo first > /file\nFROM first AS middle\nRUN echo middle >> /file\nFROM middle\nRUN exit 1",
    command: "cat /file",
    shows: "first\nmiddle\n",
  },
  {
    name: "heredoc-script",
    dockerfile: `FROM tiny
RUN <<EOF
set -e
for i in 1 2
do
  echo "line $i # kept" >> /out
done
EOF`,
    command: "cat /out",
    shows: "line 1 # kept\nline 2 # kept\n",
  },
  {
    name: "heredoc-shebang",
    dockerfile: 'FROM tiny\nRUN <<\'END\'\n#!/bin/awk -f\nBEGIN { print "from awk $1" > "/out" }\nEND',
    command: "cat /out",
    shows: "from awk $1\n",
  },
  {
    name: "heredoc-into-command",
    dockerfile: "FROM tiny\nRUN cat <<ONE > /one && cat > /two <<-TWO\nfirst $((1 + 1))\nONE\n\tsecond\n\tTWO\n",
    command: "cat /one /two",
    shows: "first 2\nsecond\n",
  },
  {
    name: "heredoc-copy",
    dockerfile: `FROM tiny
ARG WHO=world
WORKDIR /etc/app
COPY --chmod=644 <<app.conf <<'raw.conf' ./
greeting = "hello $WHO"
app.conf
path = $PATH
raw.conf
COPY --chown=7:8 <<EOF /srv/one/index.html
<h1>it's $WHO</h1>
EOF`,
    flags: ["--build-arg", "WHO=people"],
    command: "cat app.conf raw.conf /srv/one/index.html; stat -c '%a %u:%g' app.conf /srv/one/index.html",
    shows: 'greeting = "hello people"\npath = $PATH\n<h1>it\'s people</h1>\n644 0:0\n644 7:8\n',
  },
  {
    name: "args",
    flags: ["--build-arg", "TAG=latest", "--build-arg", "MODE=release"],
    dockerfile: `ARG TAG=none
ARG NAME=tiny
FROM \${NAME}:\${TAG}
ARG TAG
ARG MODE=debug
ARG DIR=/opt/\${MODE}
ENV SET=\${UNSET:-default} OTHER=\${MODE:+on}
RUN mkdir -p $DIR && echo "$TAG $MODE" > $DIR/info
WORKDIR $DIR`,
    command: 'pwd; cat info; echo "$SET $OTHER [$TAG]"',
    shows: "/opt/release\nlatest release\ndefault on []\n",
  },
  {
    name: "shell",
    dockerfile:
      'FROM tiny\nSHELL ["/bin/sh", "-e", "-c"]\nRUN echo "$-" | grep -c e > /opts\nSHELL ["/bin/sh", "-c"]\nRUN echo plain >> /opts\nRUN ["/bin/sh", "-c", "echo exec >> /opts"]',
    command: "cat /opts",
    shows: "1\nplain\nexec\n",
  },
  {
    name: "entrypoint-and-cmd",
    dockerfile:
      'FROM tiny\nENTRYPOINT ["/bin/sh", "-c", "echo \\"$0 $1\\" > /tmp/started; sleep 3600"]\nCMD ["with", "arguments"]\nHEALTHCHECK --interval=1s --retries=3 CMD test -s /tmp/started',
    command: "cat /tmp/started",
    shows: "with arguments\n",
  },
  {
    name: "healthcheck",
    dockerfile: 'FROM tiny\nHEALTHCHECK CMD ["test", "-e", "/tmp/ready"]\nCMD sleep 1 && touch /tmp/ready && sleep 3600',
    command: "ls /tmp/ready",
    shows: "/tmp/ready\n",
  },
  {
    name: "users-and-owners",
    dockerfile: `FROM tiny
RUN echo 'root:x:0:0:root:/root:/bin/sh' > /etc/passwd; echo 'app:x:1500:777::/home/app:/bin/sh' >> /etc/passwd; printf 'root:x:0:\\ncrew:x:777:\\n' > /etc/group
COPY --chown=app:crew --chmod=0755 data /home/app/data/
COPY data/one /root-owned
USER app
WORKDIR /home/app/work
RUN id -un > who`,
    files: { "data/one": "1\n", "data/deep/two": "2\n" },
    command: "id -un; pwd; cat who; stat -c '%u:%g %a' /home/app/data/one /root-owned /home/app/work; cat ../data/deep/two",
    shows: "app\n/home/app/work\napp\n1500:777 755\n0:0 644\n1500:777 755\n2\n",
  },
  {
    name: "dockerignore",
    dockerfile: "FROM tiny\nWORKDIR /app\nCOPY . .\n",
    files: {
      ".dockerignore": "# comment\nnode_modules\n**/*.log\n!keep.log\nsecret*\n",
      "node_modules/x/index.js": "x",
      "src/a.txt": "a",
      "src/debug.log": "no",
      "keep.log": "yes",
      "secrets.env": "no",
    },
    command: "find . -type f | sort",
    shows: "./.dockerignore\n./Dockerfile\n./keep.log\n./src/a.txt\n",
  },
  {
    name: "build-secret",
    flags: ["--secret", "id=token,src=token.txt", "--secret", "id=variable,env=SVC_TEST_SECRET"],
    files: { "token.txt": "s3cr3t-in-a-file", ".dockerignore": "token.txt" },
    dockerfile: `FROM tiny
RUN --mount=type=secret,id=token wc -c < /run/secrets/token > /length
RUN --mount=type=secret,id=token,target=/etc/netrc,required=true grep -c s3cr3t /etc/netrc >> /length
RUN --mount=type=secret,id=variable,env=TOKEN echo \${#TOKEN} >> /length
RUN --mount=type=secret,id=absent test ! -e /run/secrets/absent`,
    command: "tr -d ' ' < /length; ls /etc/netrc 2>&1 | grep -c 'No such'; grep -rl s3cr3t /etc /tmp /run 2>/dev/null | wc -l | tr -d ' '",
    shows: "16\n1\n20\n1\n0\n",
  },
  {
    name: "add-archive",
    dockerfile: "FROM tiny\nADD bundle.tar /opt/bundle/\nADD plain.txt /opt/\n",
    files: { "bundle.tar": "(made by the test)", "plain.txt": "plain\n" },
    command: "cat /opt/bundle/inside.txt /opt/plain.txt; ls /tmp/.svc-add 2>&1 | grep -c 'No such'",
    shows: "inside\nplain\n1\n",
  },
  {
    name: "patterns-and-links",
    dockerfile: 'FROM tiny\nCOPY *.txt docs/*.md /texts/\nCOPY ["with space/a b", "/spaced/"]\nCOPY --link linked /linked/\n',
    files: { "one.txt": "1", "two.txt": "2", "docs/read.md": "m", "docs/skip.rst": "s", "with space/a b": "ab", "linked/file": "f" },
    command: "ls /texts /spaced /linked",
    shows: "/linked:\nfile\n\n/spaced:\na b\n\n/texts:\none.txt\nread.md\ntwo.txt\n",
  },
  {
    name: "comments-and-continuations",
    dockerfile: `# syntax=docker/dockerfile:1
FROM tiny
# a comment
RUN echo one > /out && \\
    # inside a continued line

    echo "two 'three'" >> /out
env  A=1 \\
     B="two words" \\
     C='single $A'
LABEL org.example.title="x" maintainer="y"
EXPOSE 80/tcp 443
VOLUME /data
STOPSIGNAL SIGTERM`,
    command: 'cat /out; echo "$A|$B|$C"',
    shows: "one\ntwo 'three'\n1|two words|single $A\n",
  },
  {
    name: "task-of-an-evaluation",
    dockerfile: `FROM tiny AS fixtures
RUN mkdir -p /fixtures && for i in 1 2 3; do echo "case $i" > /fixtures/$i.txt; done
FROM tiny
ENV TASK_HOME=/task PATH="/task/bin:\${PATH}"
WORKDIR $TASK_HOME
COPY --chmod=755 bin/ bin/
COPY --from=fixtures /fixtures tests/
COPY <<EOF README
Run check in $TASK_HOME
EOF
RUN check tests > expected
CMD ["sleep", "3600"]`,
    files: { "bin/check": '#!/bin/sh\ncat "$1"/*.txt | wc -l | tr -d " "\n' },
    command: "check tests; cat expected README; ls",
    shows: "3\n3\nRun check in /task\nREADME\nbin\nexpected\ntests\n",
  },
];
