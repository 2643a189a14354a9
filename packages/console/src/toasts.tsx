// Short messages at the edge of the page; screen readers announce them.
import { signal } from "@preact/signals";
import type { JSX } from "preact";

type Toast = { readonly id: number; readonly text: string; readonly kind: "ok" | "bad" };

const SHOWN_MS = 6_000;
const toasts = signal<readonly Toast[]>([]);
let nextID = 1;

export function say(text: string, kind: "ok" | "bad" = "ok"): void {
  const toast = { id: nextID++, text, kind };
  toasts.value = [...toasts.value.slice(-3), toast];
  setTimeout(() => drop(toast.id), kind === "bad" ? 2 * SHOWN_MS : SHOWN_MS);
}

function drop(id: number): void {
  toasts.value = toasts.value.filter((toast) => toast.id !== id);
}

export function Toasts(): JSX.Element {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ id, text, kind }) => (
        <div key={id} class={`toast ${kind}`}>
          <span>{text}</span>
          <button type="button" class="small" aria-label="Dismiss" onClick={() => drop(id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
