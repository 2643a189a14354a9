// Answers requests that cannot be parsed (URL or head), in the format of every other failure.
import { STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import { Failure, failureBody } from "@svc/contract/failures.ts";
import type { FastifyReply, FastifyRequest } from "fastify";

const JSON_TYPE = "application/json; charset=utf-8";

/** Answers what fastify refuses before routing, which is mostly a URL that is not percent-encoded UTF-8. */
export function answerBadURL(error: Error, request: FastifyRequest, reply: FastifyReply): void {
  const path = (request.url ?? "").split("?")[0]?.slice(0, 256);
  const failure = new Failure("INVALID_REQUEST", `${request.method} ${path}: the path is not percent-encoded UTF-8`, { cause: error });
  void reply
    .code(failure.row.http)
    .type(JSON_TYPE)
    .send(JSON.stringify(failureBody(failure)));
}

/** Answers what Node's own parser refuses: there is no request object, only a connection, which is closed afterwards. */
export function answerBrokenRequest(error: NodeJS.ErrnoException, socket: Socket): void {
  // I29
  // The connection was reset, or an answer has already been sent.
  if (error.code === "ECONNRESET" || !socket.writable) return void socket.destroy();
  const failure = failureOf(error.code ?? "");
  const status = error.code === "ERR_HTTP_REQUEST_TIMEOUT" ? 408 : failure.row.http;
  const body = JSON.stringify({ ...failureBody(failure), code: status });
  const head = [`HTTP/1.1 ${status} ${STATUS_CODES[status]}`, `Content-Type: ${JSON_TYPE}`, `Content-Length: ${Buffer.byteLength(body)}`, "Connection: close"];
  socket.end(`${head.join("\r\n")}\r\n\r\n${body}`);
}

function failureOf(code: string): Failure {
  switch (code) {
    case "HPE_HEADER_OVERFLOW":
      return new Failure("HEADERS_TOO_LARGE", "the request's head is too large");
    case "HPE_INVALID_METHOD":
      return new Failure("METHOD_NOT_ALLOWED", "the request's method is unknown; expected GET, POST, PUT, PATCH or DELETE");
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new Failure("TIMED_OUT", "the request was not complete in time");
    default:
      return new Failure("INVALID_REQUEST", `the request is malformed (${code})`);
  }
}
