// The verbs for templates: list, build, add, pull, logs, cancel, tag, publish, delete.
import { Option } from "commander";
import { collected, count, outputOption, pairs, several, type Verb } from "./verb.ts";

/** The limits of contract/src/template-build.ts. */
const MAX_CPU = 1024;
const MAX_MEMORY_MB = 1 << 24;
const MAX_DISK_MB = 1 << 24;

export function addTemplateVerbs(program: Verb): void {
  const template = program.verb("template", "list, build, tag and delete what sandboxes start from");
  template
    .clientVerb("list", "list the templates (for snapshots: svc snapshot list)")
    .alias("ls")
    .option("-q, --quiet", "ids only")
    .addOption(outputOption())
    .addHelpText("after", "\nExamples:\n  svc template list\n  svc template list --output json")
    .run(async (options: never) => (await import("../template/template.ts")).listTemplates(options));

  template
    .clientVerb("build", "build a template from a Dockerfile, an image or another template")
    .argument("[context]", "directory that COPY takes files from (default: the current one)")
    .option("-f, --file <dockerfile>", "the Dockerfile (default: Dockerfile in the context)")
    .option("-n, --name <name[:tag]>", "the template's name (default: the context directory's name)")
    .addOption(new Option("--from <template>", "start from this template instead of the Dockerfile's FROM").conflicts("image"))
    .option("--image <image>", "start from this OCI image, or debian:SUITE, instead of the Dockerfile's FROM")
    .option("--build-arg <name=value>", "a value for the Dockerfile's ARG (repeat for more)", pairs)
    .option("--target <stage>", "the stage of the Dockerfile to build (default: the last one)")
    .option("--secret <secret>", "id=NAME,src=FILE or id=NAME,env=VARIABLE, for RUN --mount=type=secret (repeat for more)", collected)
    .option("--start-cmd <command>", "command that already runs when a sandbox starts")
    .option("--ready-cmd <command>", "command that succeeds once the start command is ready")
    .option("--cpu <number>", "CPUs of its sandboxes", count(MAX_CPU))
    .option("--memory <MiB>", "memory of its sandboxes", count(MAX_MEMORY_MB))
    .option("--disk <MiB>", "disk of its sandboxes, on top of the template's files", count(MAX_DISK_MB))
    .option("--strict-files", "in its sandboxes, limit the file API to its user's own permissions")
    .option("--no-cache", "run every step, ignoring the build cache")
    .option("--registry-user <name>", "user of the image's registry; the password comes from SVC_REGISTRY_PASSWORD, else from stdin")
    .option("-d, --detach", "return when the build has started; follow it with svc template logs -f")
    .option("-q, --quiet", "print only the template's id, at the end")
    .addOption(outputOption())
    .usage("[options] [context]")
    .addHelpText(
      "after",
      `
Runs the Dockerfile's steps in sandboxes on the server, never on the host. Files that COPY and ADD name are uploaded, except
those in .dockerignore; the server keeps them, so later builds upload only what has changed. Unchanged steps come from the
build cache.
Without a Dockerfile, --image or --from alone make a template. With --image or --from, a Dockerfile is used only if you name
it (-f) or a context, and its FROM is then replaced. --start-cmd and --ready-cmd override CMD and ENTRYPOINT.
Exit code 1 if a step fails. Ctrl-C cancels the build; a newer build of the same name and tags supersedes an unfinished one.

Examples:
  svc template build -n web .
  svc template build -f Dockerfile.gpu -n web:v2 --cpu 4 --memory 4096 .
  svc template build -n py --image python:3.13-slim
  svc template build -n app --from web --start-cmd './serve' --ready-cmd 'curl -sf localhost:3000' .
  svc template build -n private --image registry.example.org/app --registry-user me < password-file`,
    )
    .run(async (context: string | undefined, options: never) => (await import("../template/build.ts")).buildTemplate(context, options));

  template
    .clientVerb("add", "build a template that svc has a recipe for")
    .argument("[recipe]", "which one (default: list the recipes)")
    .option("--no-cache", "run every step, ignoring the build cache")
    .option("-d, --detach", "return when the build has started; follow it with svc template logs -f")
    .option("-q, --quiet", "print only the template's id, at the end")
    .usage("[options] [recipe]")
    .addHelpText(
      "after",
      "\nThe first create of such a template builds it, too. Packages come from Debian, PyPI and npm.\n\nExamples:\n  svc template add\n  svc template add code-interpreter\n  svc template add desktop",
    )
    .run(async (recipe: string | undefined, options: never) => (await import("../template/add.ts")).addTemplate(recipe, options));

  template
    .clientVerb("pull", "make nodes fetch a template or snapshot before a sandbox needs it there")
    .argument("<template>", "its name, name:tag or id")
    .option("--nodes <label=value>", "only nodes with this label (repeat for nodes that have all of them)", several)
    .option("-d, --detach", "return while they fetch")
    .option("--status", "only show how each node stands")
    .addOption(outputOption())
    .usage("[options] <template>")
    .addHelpText(
      "after",
      `
Without --nodes every node fetches it. For nodes that join later, the setting template.pull of the nodes is a standing rule.
Exit code 1 if a node could not fetch it, or does not answer.

Examples:
  svc template pull web
  svc template pull web:v2 --nodes gpu=yes`,
    )
    .run(async (reference: string, options: never) => (await import("../template/pull.ts")).pullTemplate(reference, options));

  template
    .clientVerb("logs", "show a build's log")
    .argument("<template>", "id or name")
    .argument("[build]", "id of the build (default: the newest)")
    .option("-f, --follow", "keep printing until the build ends")
    .addOption(outputOption())
    .usage("[options] <template> [build]")
    .addHelpText("after", "\nExit code 1 if the build failed.\n\nExamples:\n  svc template logs web\n  svc template logs -f web")
    .run(async (name: string, build: string | undefined, options: never) => (await import("../template/builds.ts")).templateLogs(name, build, options));

  template
    .clientVerb("cancel", "cancel a build that is queued or running")
    .argument("<template>", "id or name")
    .argument("[build]", "id of the build (default: the newest)")
    .usage("[options] <template> [build]")
    .addHelpText("after", "\nExamples:\n  svc template cancel web")
    .run(async (reference: string, build: string | undefined, options: never) =>
      (await import("../template/builds.ts")).cancelBuild(reference, build, options),
    );

  template
    .clientVerb("tag", "add tags to a build, remove tags, or list them")
    .argument("<name[:tag]>", "the build: a template's name, with a tag unless you mean the default one")
    .argument("[tags...]", "tags to add; each moves away from the build that had it")
    .option("--remove <tag>", "remove this tag (repeat for more)", several)
    .addOption(outputOption())
    .usage("[options] <name[:tag]> [tags...]")
    .addHelpText("after", "\nExamples:\n  svc template tag web:v2 stable\n  svc template tag web --remove v1\n  svc template tag web")
    .run(async (name: string, tags: string[], options: never) => (await import("../template/template.ts")).tag(name, tags, options));

  template
    .clientVerb("publish", "mark a template as public")
    .argument("<template>", "id or name")
    .option("--private", "mark it as private instead")
    .usage("[options] <template>")
    .addHelpText(
      "after",
      "\nKeys of tenants start sandboxes from public templates alone; the deployment's own key starts all of them.\n\nExamples:\n  svc template publish web\n  svc template publish web --private",
    )
    .run(async (name: string, options: never) => (await import("../template/template.ts")).publish(name, options));

  template
    .clientVerb("delete", "delete templates; sandboxes started from them keep running")
    .alias("rm")
    .argument("<templates...>", "ids or names")
    .usage("[options] <templates...>")
    .addHelpText("after", "\nExamples:\n  svc template delete web\n  svc template delete web py")
    .run(async (names: string[], options: never) => (await import("../template/template.ts")).deleteTemplates(names, options));
}
