// One connection to Redis; after a failure the next command opens another one.
import { Failure } from "@svc/contract/failures.ts";

const CALL_MS = 5000;
const MAX_WAITING = 1024;

export type RedisAddress = { readonly host: string; readonly port: number; readonly username: string; readonly password: string; readonly database: number };
export type RedisValue = string | number | null | readonly RedisValue[];
type Client = Awaited<ReturnType<typeof connected>>;

export class RedisConnection {
  readonly #address: RedisAddress;
  #client: Promise<Client> | undefined;
  #waiting = 0;

  constructor(address: RedisAddress) {
    this.#address = address;
  }

  /** @throws METADATA_UNAVAILABLE: a command that was sent may have been executed. */
  async call(...args: readonly (string | number | bigint)[]): Promise<RedisValue> {
    if (this.#waiting >= MAX_WAITING) throw new Failure("TOO_MANY_REQUESTS", `${MAX_WAITING} commands are waiting for redis, the maximum`);
    this.#waiting++;
    const client = (this.#client ??= connected(this.#address));
    const { promise: late, reject } = Promise.withResolvers<never>();
    const timer = setTimeout(() => reject(new Error(`it did not answer ${args[0]} within ${CALL_MS} ms`)), CALL_MS);
    let isOpen = false;
    const answer = client.then((open) => {
      isOpen = true;
      return open.sendCommand<RedisValue>(args.map(String));
    });
    try {
      return await Promise.race([late, answer]);
    } catch (error) {
      const { ErrorReply } = await import("@redis/client");
      const isRefusal = error instanceof ErrorReply;
      // After a refused command the connection can be used further, after a refused login it cannot.
      if (!isRefusal || !isOpen) this.#forget(client);
      const { host, port } = this.#address;
      throw new Failure("METADATA_UNAVAILABLE", `${isRefusal ? "redis refused" : `redis at ${host}:${port}`}: ${(error as Error).message}`, { cause: error });
    } finally {
      clearTimeout(timer);
      this.#waiting--;
    }
  }

  close(): void {
    if (this.#client !== undefined) this.#forget(this.#client);
  }

  #forget(client: Promise<Client>): void {
    if (this.#client === client) this.#client = undefined;
    client.then((open) => open.isOpen && open.destroy()).catch(() => {});
  }
}

/** The library is loaded only where the records are in Redis, since it is large. */
async function connected({ host, port, username, password, database }: RedisAddress) {
  const { createClient } = await import("@redis/client");
  const client = createClient({
    RESP: 2,
    socket: { host, port, connectTimeout: CALL_MS, reconnectStrategy: false },
    ...(username === "" ? {} : { username }),
    ...(password === "" ? {} : { password }),
    database,
  });
  // The commands that are under way fail with the same error.
  client.on("error", () => {});
  await client.connect();
  return client;
}
