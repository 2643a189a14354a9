// Takes over the terminal for a while: redraws frames in place at any size, reads keys, and restores the terminal at the end.
import type { WriteStream } from "node:tty";

export type Screen = {
  readonly columns: number;
  readonly rows: number;
  /** Replaces the frame; lines that are too long or too many are cut. */
  draw(lines: readonly string[]): void;
  /** Resolves when q or Ctrl-C was pressed, or when a signal or a closed window ends it. */
  readonly left: Promise<void>;
  /** Restores the terminal; the last frame stays on it. */
  close(): void;
};

const ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE = "\x1b[?25h\x1b[?1049l";
const LEAVING = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
const CTRL_C = "\x03";

/** `redraw` is called when the terminal's size has changed. */
export function openScreen(redraw: () => void, output: WriteStream = process.stdout): Screen {
  const input = process.stdin;
  const { promise: left, resolve: leave } = Promise.withResolvers<void>();
  let last: readonly string[] = [];
  let isOpen = true;
  const onKeys = (keys: Buffer) => {
    if (/[qQ]/.test(keys.toString()) || keys.includes(CTRL_C)) leave();
  };
  const onResize = () => {
    output.write("\x1b[2J");
    redraw();
  };
  const end = () => leave();
  const close = () => {
    if (!isOpen) return;
    isOpen = false;
    process.off("exit", close);
    output.off("resize", onResize).off("error", end);
    for (const signal of LEAVING) process.off(signal, end);
    if (input.isTTY) {
      input.off("data", onKeys).setRawMode(false);
      input.pause().unref?.();
    }
    output.write(LEAVE);
    if (last.length > 0) output.write(`${last.join("\n")}\n`);
  };
  process.once("exit", close);
  for (const signal of LEAVING) process.once(signal, end);
  // Must run before the process's own handler of a broken pipe, which would leave the terminal in raw mode.
  output.on("resize", onResize).on("error", end);
  if (input.isTTY) {
    input.setRawMode(true);
    input.on("data", onKeys).once("end", end).resume();
  }
  output.write(ENTER);
  return {
    get columns() {
      return output.columns || 80;
    },
    get rows() {
      return output.rows || 24;
    },
    draw(lines) {
      if (!isOpen) return;
      last = lines.slice(0, this.rows).map((line) => cut(line, this.columns));
      // Each line is overwritten and the rest of the screen cleared afterwards, so that the screen does not flicker.
      output.write(`\x1b[H${last.map((line) => `${line}\x1b[K`).join("\r\n")}\x1b[J`);
    },
    left,
    close,
  };
}

/** Returns at most `columns` characters, not counting colour escapes. */
export function cut(line: string, columns: number): string {
  let seen = 0;
  let out = "";
  let isColoured = false;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: escapes begin with one
  for (const part of line.split(/(\x1b\[[0-9;]*m)/)) {
    if (part.startsWith("\x1b[")) {
      out += part;
      isColoured = true;
      continue;
    }
    const letters = [...part];
    out += letters.slice(0, Math.max(0, columns - seen)).join("");
    seen += letters.length;
  }
  return seen > columns && isColoured ? `${out}\x1b[0m` : out;
}
