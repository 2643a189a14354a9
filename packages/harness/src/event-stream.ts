// Reads server-sent events as the standard defines, in order, and keeps the id with which a client would reconnect.
export type Sent = { readonly id: number; readonly event: string; readonly data: string };

export type Stream = AsyncDisposable & {
  readonly status: number;
  /** Returns the next event; undefined at the end of the stream, however it ended. */
  next(): Promise<Sent | undefined>;
  take(count: number): Promise<Sent[]>;
  lastEventID(): string;
};

export async function openStream(url: string, headers: Record<string, string>): Promise<Stream> {
  const gone = new AbortController();
  const response = await fetch(url, { headers, signal: gone.signal });
  let lastID = "";
  const all = eventsOf(response, (id) => {
    lastID = id;
  });
  const next = async () => (await all.next().catch(() => ({ value: undefined }))).value as Sent | undefined;
  return {
    status: response.status,
    next,
    async take(count) {
      const taken: Sent[] = [];
      while (taken.length < count) {
        const event = await next();
        if (event === undefined) throw new Error(`the stream ended after ${taken.length} of ${count} events`);
        taken.push(event);
      }
      return taken;
    },
    lastEventID: () => lastID,
    async [Symbol.asyncDispose]() {
      gone.abort();
    },
  };
}

async function* eventsOf(response: Response, onID: (id: string) => void): AsyncGenerator<Sent> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
    text += decoder.decode(chunk, { stream: true });
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const fields = new Map(
        text
          .slice(0, end)
          .split("\n")
          .filter((line) => !line.startsWith(":"))
          .map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)] as const),
      );
      text = text.slice(end + 2);
      const id = fields.get("id");
      if (id !== undefined) onID(id);
      const data = fields.get("data");
      if (data !== undefined) yield { id: Number(id), event: fields.get("event") ?? "message", data };
    }
  }
}
