// The verbs for volumes: create, list and delete them, and their files.
import { count, outputOption, type Verb } from "./verb.ts";

/** The limits of contract/src/volumes.ts. */
const MAX_SIZE_MB = 1 << 24;
const MAX_DEPTH = 100;

export function addVolumeVerbs(program: Verb): void {
  const volume = program.verb("volume", "keep files over the end of sandboxes, and share them between sandboxes");
  volume
    .clientVerb("create", "make an empty volume")
    .argument("<name>", "letters, digits, '-' and '_'")
    .option("--size <MiB>", "its quota (default: the server's volumes.size_mb)", count(MAX_SIZE_MB))
    .addOption(outputOption())
    .usage("[options] <name>")
    .addHelpText("after", "\nExamples:\n  svc volume create data --size 512\n  svc start base -d --volume data:/data")
    .run(async (name: string, options: never) => (await import("../volume/volume.ts")).createVolume(name, options));
  volume
    .clientVerb("list", "list the volumes, with what they hold and how many sandboxes mount them")
    .alias("ls")
    .option("-q, --quiet", "names only")
    .addOption(outputOption())
    .addHelpText("after", "\nExamples:\n  svc volume list\n  svc volume list --output json")
    .run(async (options: never) => (await import("../volume/volume.ts")).listVolumes(options));
  volume
    .clientVerb("files", "list the files of a volume")
    .argument("<volume[:path]>", "a volume, or a directory in it")
    .option("--depth <levels>", "how many levels of directories (default: 1)", count(MAX_DEPTH))
    .addOption(outputOption())
    .usage("[options] <volume[:path]>")
    .addHelpText("after", "\nExamples:\n  svc volume files data\n  svc volume files data:models --depth 3")
    .run(async (asked: string, options: never) => (await import("../volume/volume.ts")).listFiles(asked, options));
  volume
    .clientVerb("put", "write a file into a volume; sandboxes see it when it is complete")
    .argument("<local>", "a file, or - for stdin")
    .argument("<volume:path>", "the file in the volume, or a directory that ends with /")
    .usage("[options] <local> <volume:path>")
    .addHelpText("after", "\nExamples:\n  svc volume put model.bin data:models/\n  tar c src | svc volume put - data:src.tar")
    .run(async (local: string, asked: string, options: never) => (await import("../volume/volume.ts")).putFile(local, asked, options));
  volume
    .clientVerb("get", "read a file of a volume")
    .argument("<volume:path>", "the file in the volume")
    .argument("[local]", "where to write it, or - for stdout (default: its name, here)")
    .usage("[options] <volume:path> [local]")
    .addHelpText("after", "\nExamples:\n  svc volume get data:result.json\n  svc volume get data:result.json -")
    .run(async (asked: string, local: string | undefined, options: never) => (await import("../volume/volume.ts")).getFile(asked, local, options));
  volume
    .clientVerb("remove", "remove files or directories of a volume")
    .argument("<volume:path...>", "files, or directories with all below them")
    .usage("[options] <volume:path...>")
    .addHelpText("after", "\nExamples:\n  svc volume remove data:models/old data:tmp")
    .run(async (asked: string[], options: never) => (await import("../volume/volume.ts")).removeFiles(asked, options));
  volume
    .clientVerb("delete", "delete volumes with all their files")
    .alias("rm")
    .argument("<volumes...>", "names or ids")
    .usage("[options] <volumes...>")
    .addHelpText("after", "\nA volume that a sandbox mounts is refused.\n\nExamples:\n  svc volume delete data")
    .run(async (names: string[], options: never) => (await import("../volume/volume.ts")).deleteVolumes(names, options));
}
