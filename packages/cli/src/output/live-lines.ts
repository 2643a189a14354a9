// Redraws the last lines of a terminal in place, below lines that scroll up; also correct after the terminal's size has changed.
import type { WriteStream } from "node:tty";
import { cut } from "@svc/contract/screen.ts";

export class LiveLines {
  readonly #output: WriteStream;
  #shown: readonly string[] = [];

  constructor(output: WriteStream) {
    this.#output = output;
  }

  /** Replaces the live lines. */
  draw(lines: readonly string[]): void {
    const visible = lines.slice(-Math.max(1, (this.#output.rows || 24) - 1)).map((line) => cut(line, this.#columns - 1));
    this.#output.write(`${this.#erase()}${visible.map((line) => `${line}\n`).join("")}`);
    this.#shown = visible;
  }

  /** Prints lines that stay, above the live ones. */
  settle(lines: readonly string[]): void {
    const shown = this.#shown;
    this.#output.write(`${this.#erase()}${lines.map((line) => `${cut(line, this.#columns - 1)}\n`).join("")}${shown.map((line) => `${line}\n`).join("")}`);
  }

  get #columns(): number {
    return Math.max(20, this.#output.columns || 80);
  }

  /** A terminal that became narrower has wrapped the lines that were drawn for the wider one. */
  #erase(): string {
    // biome-ignore lint/suspicious/noControlCharactersInRegex: escapes begin with one
    const rows = this.#shown.reduce((sum, line) => sum + Math.max(1, Math.ceil([...line.replace(/\x1b\[[0-9;]*m/g, "")].length / this.#columns)), 0);
    return rows === 0 ? "" : `\x1b[${rows}A\x1b[J`;
  }
}
