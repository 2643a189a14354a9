// The Dockerfiles that use most of the format; `svc test long dockerfiles` builds all of them.
import { dockerfileSuite } from "./dockerfiles.suite.ts";

const telling: readonly string[] = ["multi-stage", "heredoc-copy", "build-secret", "task-of-an-evaluation"];

dockerfileSuite(({ name }) => telling.includes(name));
