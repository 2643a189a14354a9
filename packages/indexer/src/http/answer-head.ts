// The head of an HTTP answer: status, content type, length, and whether the connection stays open.
import { STATUS_CODES } from "node:http";
import type { Answer } from "./http-exchange.ts";

export function headOf({ status = 200, type }: Answer, length: number, keep: boolean): string {
  return `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? "Unknown"}\r\nContent-Type: ${type}\r\nContent-Length: ${length}\r\n${keep ? "" : "Connection: close\r\n"}\r\n`;
}
