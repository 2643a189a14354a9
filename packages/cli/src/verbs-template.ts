// The verbs for templates: list, build, logs, cancel, tag, publish, delete.
import { Option } from "commander";
import { count, outputOption, pairs, several, type Verb } from "./verb.ts";

/** As contract/src/template-build.ts bounds them. */
const MAX_CPU = 1024;
const MAX_MEMORY_MB = 1 << 24;

export function addTemplateVerbs(program: Verb): void {
  const template = program.verb("template", "see, build and name what sandboxes start from");
  template
    .clientVerb("list", "list the templates; snapshots have svc snapshot list")
    .alias("ls")
    .addOption(outputOption())
    .addHelpText("after", "\nExamples:\n  svc template list\n  svc template list --output json")
    .run(async (options: never) => (await import("./template-list.ts")).listTemplates(options));

  template
    .clientVerb("build", "build a template from a Dockerfile, an image or another template")
    .argument("[context]", "directory that COPY takes files from (default: this one)")
    .option("-f, --file <dockerfile>", "the Dockerfile (default: Dockerfile in the context)")
    .option("-n, --name <name[:tag]>", "what it is called (default: the context directory's name)")
    .addOption(new Option("--from <template>", "begin with this template instead of the Dockerfile's FROM").conflicts("image"))
    .option("--image <image>", "begin with this OCI image, or debian:SUITE, instead of the Dockerfile's FROM")
    .option("--build-arg <name=value>", "a value for the Dockerfile's ARG (repeat for more)", pairs)
    .option("--start-cmd <command>", "runs in every sandbox from its start on")
    .option("--ready-cmd <command>", "the template is ready when this succeeds")
    .option("--cpu <number>", "CPUs of its sandboxes", count(MAX_CPU))
    .option("--memory <MiB>", "memory of its sandboxes", count(MAX_MEMORY_MB))
    .option("--strict-files", "in its sandboxes the file API reaches files with its user's rights alone")
    .option("--no-cache", "run every step, even those that are known")
    .option("--registry-user <name>", "user of the image's registry; the password is in SVC_REGISTRY_PASSWORD, else a line of stdin")
    .option("-d, --detach", "return when the build has begun; svc template logs follows it")
    .option("-q, --quiet", "only the template's id, at the end")
    .addOption(outputOption())
    .usage("[options] [context]")
    .addHelpText(
      "after",
      `
Runs the Dockerfile's steps in a sandbox of the server, never on the host. Files that COPY and ADD name are packed and sent,
what .dockerignore names left out; the server keeps them, so that only what has changed is sent again. Steps that are known
come from its cache. Without a Dockerfile, --image or --from alone make a template.
With --image or --from a Dockerfile counts only where -f or a context is named; its FROM is then replaced.
--start-cmd and --ready-cmd go before CMD and ENTRYPOINT of the Dockerfile. Exit code 1 when a step fails.
Ctrl-C cancels the build; a newer build of the same name and tags takes the place of one that is not over.

Examples:
  svc template build -n web .
  svc template build -f Dockerfile.gpu -n web:v2 --cpu 4 --memory 4096 .
  svc template build -n py --image python:3.13-slim
  svc template build -n app --from web --start-cmd './serve' --ready-cmd 'curl -sf localhost:3000' .
  svc template build -n private --image registry.example.org/app --registry-user me < password-file`,
    )
    .run(async (context: string | undefined, options: never) => (await import("./template-build.ts")).buildTemplate(context, options));

  template
    .clientVerb("logs", "show what a build said")
    .argument("<template>", "id or name")
    .argument("[build]", "id of the build (default: the newest)")
    .option("-f, --follow", "until the build ends")
    .addOption(outputOption())
    .usage("[options] <template> [build]")
    .addHelpText("after", "\nExit code 1 when the build failed.\n\nExamples:\n  svc template logs web\n  svc template logs -f web")
    .run(async (name: string, build: string | undefined, options: never) => (await import("./template-logs.ts")).templateLogs(name, build, options));

  template
    .clientVerb("cancel", "end a build that waits or runs")
    .argument("<template>", "id or name")
    .argument("[build]", "id of the build (default: the newest)")
    .usage("[options] <template> [build]")
    .addHelpText("after", "\nExamples:\n  svc template cancel web")
    .run(async (reference: string, build: string | undefined, options: never) => (await import("./template-cancel.ts")).cancelBuild(reference, build, options));

  template
    .clientVerb("tag", "give a build further tags, take tags away, or list them")
    .argument("<name[:tag]>", "the build: a template's name, with a tag where not the default one is meant")
    .argument("[tags...]", "tags to give it; each moves from the build that bore it")
    .option("--remove <tag>", "take this tag away (repeat for more)", several)
    .addOption(outputOption())
    .usage("[options] <name[:tag]> [tags...]")
    .addHelpText("after", "\nExamples:\n  svc template tag web:v2 stable\n  svc template tag web --remove v1\n  svc template tag web")
    .run(async (name: string, tags: string[], options: never) => (await import("./template-name.ts")).tag(name, tags, options));

  template
    .clientVerb("publish", "mark a template as public")
    .argument("<template>", "id or name")
    .option("--private", "mark it as private instead")
    .usage("[options] <template>")
    .addHelpText(
      "after",
      "\nA deployment has one tenant, so this is a mark that clients show.\n\nExamples:\n  svc template publish web\n  svc template publish web --private",
    )
    .run(async (name: string, options: never) => (await import("./template-name.ts")).publish(name, options));

  template
    .clientVerb("delete", "delete templates; sandboxes started from them go on")
    .alias("rm")
    .argument("<templates...>", "ids or names")
    .usage("[options] <templates...>")
    .addHelpText("after", "\nExamples:\n  svc template delete web\n  svc template delete web py")
    .run(async (names: string[], options: never) => (await import("./template-name.ts")).deleteTemplates(names, options));
}
