// The client of envd, the agent inside every sandbox: processes, terminals, and files, through the platform's proxy.
import type { Duplex, Readable } from "node:stream";
import { queryOfText } from "./byte-text.ts";
import { type EnvdAddress, EnvdHttp, type RequestOptions } from "./envd-http.ts";
import { type ProcessEvent, processEventOf } from "./process-event.ts";

export type { EnvdAddress, RequestOptions } from "./envd-http.ts";

export type TerminalSize = { readonly cols: number; readonly rows: number };

export type StartRequest = RequestOptions & {
  /** Looked up on the PATH inside the sandbox; it runs without a shell, so nothing needs quoting. */
  readonly cmd: string;
  readonly args?: readonly string[];
  readonly envs?: Readonly<Record<string, string>>;
  /** Relative to the user's home directory, which is the default. */
  readonly cwd?: string | undefined;
  /** If given, the process gets a terminal of this size, and its output arrives as `pty` events. */
  readonly pty?: TerminalSize;
  /** A name by which `connect` finds the process later. */
  readonly tag?: string;
  /** false: stdin is empty. Default: stdin is open until `closeStdin`. */
  readonly stdin?: boolean;
  /** The sandbox ends the process after this long, whether a client is connected or not. Absent: no limit. */
  readonly timeoutMs?: number | undefined;
};

/** Selects a process by its pid or by the tag it was started with. */
export type ProcessSelector = { readonly pid: number } | { readonly tag: string };
export type ProcessInfo = { readonly pid: number; readonly tag: string | undefined; readonly cmd: string; readonly args: readonly string[] };

export type FileEntry = {
  readonly name: string;
  readonly path: string;
  /** The type of a symbolic link is that of its target, and `symlinkTarget` is set. */
  readonly type: "file" | "directory" | "other";
  readonly sizeBytes: number;
  /** Permission bits. */
  readonly mode: number;
  readonly owner: string;
  readonly group: string;
  readonly symlinkTarget: string | undefined;
};

/**
 * A client of one sandbox's envd. Specification, proxy rule 3: on a secure sandbox each request carries its envdAccessToken in X-Access-Token.
 *
 * Every method throws Failure: UNAUTHENTICATED (token missing or wrong, unknown user), SANDBOX_NOT_RUNNING, SERVER_UNREACHABLE, INVALID_REQUEST, and those that
 * its own comment names.
 */
export class EnvdClient {
  readonly #http: EnvdHttp;

  constructor(address: EnvdAddress) {
    this.#http = new EnvdHttp(address);
  }

  /** Closes idle connections. It is not required before the process exits. */
  close(): void {
    this.#http.close();
  }

  /**
   * Starts a process and yields its events; the first is `start`, the last `end`. Leaving the loop disconnects, and the process keeps running.
   * TIMED_OUT when `timeoutMs` is over; FILE_NOT_FOUND or INVALID_REQUEST when `cmd` or `cwd` does not exist.
   */
  async *start(request: StartRequest): AsyncGenerator<ProcessEvent> {
    const { cmd, args = [], envs = {}, cwd, pty, tag, stdin, user, signal, timeoutMs } = request;
    const message = {
      process: { cmd, args, envs, ...(cwd === undefined ? {} : { cwd }) },
      ...(pty === undefined ? {} : { pty: { size: pty } }),
      ...(tag === undefined ? {} : { tag }),
      ...(stdin === undefined ? {} : { stdin }),
    };
    yield* events(this.#http.stream("process.Process/Start", message, { user, signal, timeoutMs }));
  }

  /** Opens a raw connection to a TCP port inside the sandbox; either side may end its half first. PORT_NOT_OPEN when nothing listens there. */
  openPort(port: number, options: RequestOptions = {}): Promise<Duplex> {
    return this.#http.openPort(port, options);
  }

  /** Attaches to a running process, or to one that ended within the last 30 s; earlier output is not repeated. PROCESS_NOT_FOUND. */
  async *connect(process: ProcessSelector, options: RequestOptions & { timeoutMs?: number } = {}): AsyncGenerator<ProcessEvent> {
    yield* events(this.#http.stream("process.Process/Connect", { process }, options));
  }

  /** Returns the processes that were started through envd and are still running. */
  async processes(options: RequestOptions = {}): Promise<ProcessInfo[]> {
    const answer = (await this.#http.unary("process.Process/List", {}, options)) as {
      processes?: { pid?: number; tag?: string; config?: { cmd?: string; args?: string[] } }[];
    };
    return (answer.processes ?? []).map(({ pid = 0, tag, config }) => ({ pid, tag, cmd: config?.cmd ?? "", args: config?.args ?? [] }));
  }

  /** Writes to the stdin of a process, or to its terminal; waits until the process reads. Overlapping calls have no order. PROCESS_NOT_FOUND. */
  async sendInput(process: ProcessSelector, kind: "stdin" | "pty", data: Buffer, options: RequestOptions = {}): Promise<void> {
    await this.#http.unary("process.Process/SendInput", { process, input: { [kind]: data.toString("base64") } }, options, 0);
  }

  async closeStdin(process: ProcessSelector, options: RequestOptions = {}): Promise<void> {
    await this.#http.unary("process.Process/CloseStdin", { process }, options);
  }

  /** Sets the size of a process's terminal. */
  async resize(process: ProcessSelector, size: TerminalSize, options: RequestOptions = {}): Promise<void> {
    await this.#http.unary("process.Process/Update", { process, pty: { size } }, options);
  }

  /** envd's protocol supports only these two signals. */
  async sendSignal(process: ProcessSelector, signal: "SIGTERM" | "SIGKILL", options: RequestOptions = {}): Promise<void> {
    await this.#http.unary("process.Process/SendSignal", { process, signal: `SIGNAL_${signal}` }, options);
  }

  /** Returns a path's entry. FILE_NOT_FOUND. */
  async stat(path: string, options: RequestOptions = {}): Promise<FileEntry> {
    return entryOf((await this.#http.unary("filesystem.Filesystem/Stat", { path }, options))["entry"]);
  }

  /** Creates the directory and its parents, owned by the user. FILE_EXISTS if it already exists. */
  async makeDir(path: string, options: RequestOptions = {}): Promise<FileEntry> {
    return entryOf((await this.#http.unary("filesystem.Filesystem/MakeDir", { path }, options))["entry"]);
  }

  /** Renames a file, replacing an existing one. FILE_NOT_FOUND. */
  async move(source: string, destination: string, options: RequestOptions = {}): Promise<FileEntry> {
    return entryOf((await this.#http.unary("filesystem.Filesystem/Move", { source, destination }, options))["entry"]);
  }

  /** Lists entries down to `depth` levels; links inside are not followed. FILE_NOT_FOUND; INVALID_REQUEST when it is not a directory. */
  async listDir(path: string, depth = 1, options: RequestOptions = {}): Promise<FileEntry[]> {
    const answer = await this.#http.unary("filesystem.Filesystem/ListDir", { path, depth }, options);
    return ((answer["entries"] as unknown[] | undefined) ?? []).map(entryOf);
  }

  /** Removes a file, or a directory with its contents; a missing path is not an error. */
  async remove(path: string, options: RequestOptions = {}): Promise<void> {
    await this.#http.unary("filesystem.Filesystem/Remove", { path }, options);
  }

  /** Returns a file's content as a stream, with its size in bytes. FILE_NOT_FOUND; INVALID_REQUEST for a directory. */
  async download(path: string, options: RequestOptions = {}): Promise<{ body: Readable; sizeBytes: number | undefined }> {
    const response = await this.#http.request({ ...options, method: "GET", path: `/files?${new URLSearchParams({ path, ...named(options) })}` });
    const length = response.headers["content-length"];
    return { body: response, sizeBytes: length === undefined ? undefined : Number(length) };
  }

  /**
   * Writes a file from bytes or a stream (with constant memory), replacing an existing one; creates missing parents. `sizeBytes`, if known, lets the sandbox
   * detect a truncated upload. DISK_FULL; INVALID_REQUEST when the path is a directory.
   */
  async upload(path: string, body: Buffer | Readable, options: RequestOptions & { sizeBytes?: number | undefined } = {}): Promise<void> {
    const { sizeBytes, user, signal } = options;
    const headers = { "content-type": "application/octet-stream", ...(sizeBytes === undefined ? {} : { "content-length": String(sizeBytes) }) };
    const query = new URLSearchParams({ path, ...named(options) });
    const response = await this.#http.request({ user, signal, method: "POST", path: `/files?${query}`, headers, body });
    for await (const _ of response) {
      // Read to the end, so that the connection can be reused.
    }
  }

  /**
   * Returns a file or a directory with its contents as an archive (pax; see archive.ts of the command line). `plan`: without contents. Paths here may contain
   * bytes (byte-text.ts). FILE_NOT_FOUND; ROUTE_NOT_FOUND from the envd of an older snapshot.
   */
  async readTree(path: string, options: RequestOptions & { plan?: boolean } = {}): Promise<Readable> {
    return await this.#tree("GET", path, options.plan === true ? "&plan=true" : "", options);
  }

  /** Returns the conflicts of a planned copy. The entries of `plan`, each ended by NUL, are a letter (f, l, d) and a name below the root. */
  async checkTree(path: string, plan: Buffer, options: RequestOptions & { force?: boolean } = {}): Promise<TreeAnswer> {
    return await this.#written(path, plan, `&check=true${forced(options)}`, options);
  }

  /** Writes an archive (or the content of one file) completely or not at all: if there are conflicts, nothing is written. DISK_FULL. */
  async writeTree(path: string, body: Readable, options: RequestOptions & { force?: boolean; isContent?: boolean } = {}): Promise<TreeAnswer> {
    return await this.#written(path, body, `${options.isContent === true ? "&content=true" : ""}${forced(options)}`, options);
  }

  async #written(path: string, body: Buffer | Readable, more: string, options: RequestOptions): Promise<TreeAnswer> {
    const response = await this.#tree("POST", path, more, options, body);
    const chunks: Buffer[] = [];
    for await (const chunk of response as AsyncIterable<Buffer>) chunks.push(chunk);
    return JSON.parse(Buffer.concat(chunks).toString()) as TreeAnswer;
  }

  async #tree(method: "GET" | "POST", path: string, more: string, { user, signal }: RequestOptions, body?: Buffer | Readable): Promise<Readable> {
    const name = user === undefined ? "" : `&username=${encodeURIComponent(user)}`;
    return await this.#http.request({ user, signal, method, path: `/files/tree?path=${queryOfText(path)}${name}${more}`, body });
  }
}

export type TreeAnswer = {
  /** The kind of entry that exists at the target path itself. */
  readonly standing: "" | "file" | "directory" | "link" | "special";
  readonly conflicts: readonly { readonly path: string; readonly standing: "file" | "directory" | "link" | "special" }[];
  /** The number of files that lost attributes which the sandbox's file system does not support. */
  readonly withoutAttributes: number;
};

function forced({ force }: { force?: boolean }): string {
  return force === true ? "&force=true" : "";
}

/** /files takes the user from the query instead of a header. */
function named({ user }: RequestOptions): { username?: string } {
  return user === undefined ? {} : { username: user };
}

async function* events(messages: AsyncGenerator<Record<string, unknown>>): AsyncGenerator<ProcessEvent> {
  for await (const message of messages) {
    const event = processEventOf(message);
    if (event !== undefined) yield event;
  }
}

type WireEntry = {
  name?: string;
  path?: string;
  type?: string | number;
  size?: string | number;
  mode?: number;
  owner?: string;
  group?: string;
  symlinkTarget?: string;
  symlink_target?: string;
};

function entryOf(wire: unknown): FileEntry {
  const { name = "", path = "", type, size = 0, mode = 0, owner = "", group = "", symlinkTarget, symlink_target } = (wire ?? {}) as WireEntry;
  const kind = type === "FILE_TYPE_FILE" || type === 1 ? "file" : type === "FILE_TYPE_DIRECTORY" || type === 2 ? "directory" : "other";
  return { name, path, type: kind, sizeBytes: Number(size), mode, owner, group, symlinkTarget: symlinkTarget ?? symlink_target };
}
