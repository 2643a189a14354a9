// One connection to Redis: commands and answers in order, and a new connection after a failure.
import { connect, type Socket } from "node:net";
import { Failure } from "@svc/contract/failures.ts";

const CALL_MS = 5000;
const MAX_WAITING = 1024;
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

export type RedisAddress = { readonly host: string; readonly port: number; readonly username: string; readonly password: string; readonly database: number };
export type RedisValue = string | bigint | null | readonly RedisValue[];
type Waiting = { resolve(value: RedisValue): void; reject(error: Failure): void };
/** Undefined while the answer is incomplete. */
type Parsed = { readonly value: RedisValue | RedisError; readonly end: number } | undefined;

class RedisError {
  readonly message: string;
  constructor(message: string) {
    this.message = message;
  }
}

export class RedisConnection {
  readonly #address: RedisAddress;
  #socket: Socket | undefined;
  #waiting: Waiting[] = [];
  #held: Buffer = Buffer.alloc(0);

  constructor(address: RedisAddress) {
    this.#address = address;
  }

  /** @throws METADATA_UNAVAILABLE: a command that was sent may have been executed. */
  call(...args: readonly (string | number | bigint)[]): Promise<RedisValue> {
    if (this.#waiting.length >= MAX_WAITING)
      return Promise.reject(new Failure("TOO_MANY_REQUESTS", `${MAX_WAITING} commands are waiting for redis, the maximum`));
    this.#socket ??= this.#open();
    return this.#send(this.#socket, args);
  }

  close(): void {
    this.#end(this.#socket, "the connection was closed");
  }

  #open(): Socket {
    const { host, port, username, password, database } = this.#address;
    const socket = connect({ host, port, noDelay: true });
    socket.on("data", (bytes) => this.#read(socket, bytes));
    socket.on("error", (error) => this.#end(socket, error.message));
    socket.on("close", () => this.#end(socket, "it closed the connection"));
    // If authentication fails, the next command fails with the same reason, so the error is ignored here.
    if (password !== "") void this.#send(socket, username === "" ? ["AUTH", password] : ["AUTH", username, password]).catch(() => undefined);
    if (database !== 0) void this.#send(socket, ["SELECT", database]).catch((error: Failure) => this.#end(socket, error.message));
    return socket;
  }

  #send(socket: Socket, args: readonly (string | number | bigint)[]): Promise<RedisValue> {
    const parts = args.map((arg) => Buffer.from(String(arg)));
    socket.write(
      Buffer.concat([Buffer.from(`*${parts.length}\r\n`), ...parts.flatMap((part) => [Buffer.from(`$${part.length}\r\n`), part, Buffer.from("\r\n")])]),
    );
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.#end(socket, `it did not answer ${args[0]} within ${CALL_MS} ms`), CALL_MS);
      const settle =
        <T>(act: (value: T) => void) =>
        (value: T) => {
          clearTimeout(timer);
          act(value);
        };
      this.#waiting.push({ resolve: settle(resolve), reject: settle(reject) });
    });
  }

  #read(socket: Socket, bytes: Buffer): void {
    if (socket !== this.#socket) return;
    this.#held = this.#held.length === 0 ? bytes : Buffer.concat([this.#held, bytes]);
    if (this.#held.length > MAX_ANSWER_BYTES) {
      this.#end(socket, `its answer has more than ${MAX_ANSWER_BYTES} bytes`);
      return;
    }
    let at = 0;
    for (;;) {
      const parsed = parse(this.#held, at);
      if (parsed === undefined) break;
      at = parsed.end;
      const next = this.#waiting.shift();
      if (parsed.value instanceof RedisError) next?.reject(new Failure("METADATA_UNAVAILABLE", `redis refused: ${parsed.value.message}`));
      else next?.resolve(parsed.value);
    }
    this.#held = this.#held.subarray(at);
  }

  #end(socket: Socket | undefined, why: string): void {
    if (socket === undefined || socket !== this.#socket) return;
    this.#socket = undefined;
    this.#held = Buffer.alloc(0);
    socket.destroy();
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const each of waiting) each.reject(new Failure("METADATA_UNAVAILABLE", `redis at ${this.#address.host}:${this.#address.port}: ${why}`));
  }
}

function parse(bytes: Buffer, at: number): Parsed {
  const lineEnd = bytes.indexOf("\r\n", at);
  if (lineEnd < 0) return undefined;
  const line = bytes.toString("utf8", at + 1, lineEnd);
  const end = lineEnd + 2;
  switch (String.fromCharCode(bytes[at] as number)) {
    case "+":
      return { value: line, end };
    case "-":
      return { value: new RedisError(line), end };
    case ":":
      return { value: BigInt(line), end };
    case "$": {
      const length = Number(line);
      if (length < 0) return { value: null, end };
      return bytes.length < end + length + 2 ? undefined : { value: bytes.toString("utf8", end, end + length), end: end + length + 2 };
    }
    case "*":
      return parseList(bytes, end, Number(line));
    default:
      return { value: new RedisError(`an answer that is not redis's: ${line.slice(0, 100)}`), end };
  }
}

function parseList(bytes: Buffer, start: number, count: number): Parsed {
  if (count < 0) return { value: null, end: start };
  const values: RedisValue[] = [];
  let at = start;
  for (let index = 0; index < count; index++) {
    const each = parse(bytes, at);
    if (each === undefined || each.value instanceof RedisError) return each;
    values.push(each.value);
    at = each.end;
  }
  return { value: values, end: at };
}
