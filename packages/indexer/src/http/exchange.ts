// One HTTP exchange as handlers see it: the request, the answer, and the table of handlers.
import type { Answer, Request as HttpRequest } from "@svc/kit/http/exchange.ts";

export type { Answer };
/** The headers that handlers read, besides Authorization; `requestOf` reads them in this order. */
export const requestHeaders = ["content-type", "accept", "x-api-key", "content-encoding"] as const;

export type Request = Pick<HttpRequest, "method" | "peer" | "body" | "bodyStays"> & {
  readonly path: string;
  /** The query string, without its question mark. */
  readonly search: string;
  /** The content type without parameters; "" if none was sent. */
  readonly type: string;
  readonly accept: string;
  readonly encoding: string;
  /** The API key or bearer token of the request. */
  readonly credential: string | undefined;
};
export type Handler = (request: Request) => Answer | Promise<Answer>;
/** Handlers by path, then by method. */
export type Routes = Readonly<Record<string, Readonly<Record<string, Handler>>>>;

export function pathOf(target: string): string {
  const mark = target.indexOf("?");
  return mark < 0 ? target : target.slice(0, mark);
}

export function requestOf({ method, target, authorization, headers, peer, body, bodyStays }: HttpRequest): Request {
  const [type = "", accept = "", key, encoding = ""] = headers;
  const path = pathOf(target);
  return {
    method,
    path,
    search: target.slice(path.length + 1),
    type: type.split(";", 1)[0]?.trim().toLowerCase() ?? "",
    accept,
    encoding,
    credential: key ?? /^bearer\s+(.*)$/i.exec(authorization ?? "")?.[1],
    peer,
    body,
    bodyStays,
  };
}
