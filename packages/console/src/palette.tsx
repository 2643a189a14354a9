// The command palette, which finds views, actions and sandboxes by a few letters.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { acts, openCreate, perform } from "./acts.tsx";
import { closeDialog } from "./dialog.tsx";
import { textFrom } from "./parts.tsx";
import { go, path, to } from "./router.ts";
import { rows } from "./rows.ts";
import { servesSandboxes, signed, signOut } from "./session.ts";
import { views } from "./views.tsx";

type Choice = { readonly label: string; readonly run: () => void };
const MOST = 12;

function choicesFor(text: string): Choice[] {
  const { value } = signed;
  if (value.state !== "in") return [];
  const found: Choice[] = views.filter((view) => view.fits(value.session)).map(({ name, title }) => ({ label: `Go to ${title}`, run: () => go(to([name])) }));
  if (!value.session.isReadOnly && servesSandboxes(value.session)) found.push({ label: "Create a sandbox", run: () => openCreate() });
  const [view, id] = path.value;
  const row = view === "sandboxes" && id !== undefined ? rows.get(id) : undefined;
  if (row !== undefined && !value.session.isReadOnly)
    for (const { act, label, fits } of acts) if (fits(row)) found.push({ label: `${label} ${row.id}`, run: () => perform(act, [row.id]) });
  found.push({ label: "Sign out", run: () => void signOut() });
  const words = text.toLowerCase().split(/\s+/);
  const matching = found.filter(({ label }) => words.every((word) => label.toLowerCase().includes(word)));
  if (text.length >= 2)
    for (const each of rows.values()) {
      if (matching.length >= MOST) break;
      if (each.id.includes(text) || (each.alias ?? "").includes(text))
        matching.push({ label: `Open ${each.id} (${each.state})`, run: () => go(to(["sandboxes", each.id])) });
    }
  return matching.slice(0, MOST);
}

export function Palette(): JSX.Element {
  const [text, setText] = useState("");
  const [at, setAt] = useState(0);
  const choices = choicesFor(text);
  const pick = (choice: Choice | undefined) => {
    if (choice === undefined) return;
    closeDialog();
    choice.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step !== 0) {
      event.preventDefault();
      setAt((at + step + choices.length) % Math.max(1, choices.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      pick(choices[at]);
    }
  };
  return (
    <div class="palette">
      <input
        role="combobox"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={choices.length === 0 ? undefined : `palette-${at}`}
        aria-label="Search views, acts and sandboxes"
        value={text}
        onInput={(event) => {
          setText(textFrom(event));
          setAt(0);
        }}
        onKeyDown={onKeyDown}
      />
      <div id="palette-list" role="listbox" aria-label="Choices">
        {choices.map((choice, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the input takes the keys
          <div key={choice.label} id={`palette-${index}`} role="option" tabIndex={-1} aria-selected={index === at} onClick={() => pick(choice)}>
            {choice.label}
          </div>
        ))}
      </div>
      {choices.length === 0 ? <p class="muted">Nothing matches.</p> : null}
    </div>
  );
}
