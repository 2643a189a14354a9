// Finds a program at the given path, or as the first match on PATH.
import { constants } from "node:fs";
import { access } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { fail } from "@svc/contract/failures.ts";

/** Directories with administration programs that a plain user's PATH may lack. */
const furtherPaths = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

export async function lookForProgram(name: string, given?: string): Promise<string | undefined> {
  const folders = [...(process.env.PATH ?? "").split(delimiter).filter(Boolean), ...furtherPaths];
  for (const path of given === undefined ? folders.map((folder) => join(folder, name)) : [given]) {
    const executable = await access(path, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (executable) return path;
  }
  return undefined;
}

export async function findProgram(name: string, given?: string): Promise<string> {
  const found = await lookForProgram(name, given);
  return found ?? fail("HOST_UNSUITABLE", given === undefined ? `${name} is not on PATH; see \`svc doctor\`` : `${name} is not an executable file at ${given}`);
}
