// The frame of all views: navigation, banners, shortcuts, and the view that the address names.
import { effect } from "@preact/signals";
import type { JSX } from "preact";
import { openCreate } from "./acts.tsx";
import { Dialogs, isDialogOpen, openDialog } from "./dialog.tsx";
import { connect, connection, disconnect, trouble } from "./live.ts";
import { Palette } from "./palette.tsx";
import { followLinks, go, path, to } from "./router.ts";
import { clearTable, takeTable } from "./rows.ts";
import { Sandbox } from "./sandbox/sandbox.tsx";
import { focused, Sandboxes } from "./sandboxes.tsx";
import { servesSandboxes, signed, signOut } from "./session.ts";
import { SignIn } from "./sign-in.tsx";
import { Toasts } from "./toasts.tsx";
import { views } from "./views.tsx";

effect(() => {
  if (signed.value.state === "in") return connectOnce();
  disconnect();
  clearTable();
});

let isConnected = false;
function connectOnce(): void {
  if (!isConnected) connect(takeTable);
  isConnected = true;
}
effect(() => {
  if (signed.value.state === "out") isConnected = false;
});

document.addEventListener("click", followLinks);
document.addEventListener("keydown", onKey);

export const shortcuts: readonly (readonly [keys: string, does: string])[] = [
  ["/", "Filter the list"],
  ["c", "Create a sandbox"],
  ["t", "Open a terminal in the sandbox that has the focus"],
  ["Ctrl K", "Find a view, an act or a sandbox"],
  ["g then s, f, e, n, h, d, a", "Go to sandboxes, forks, templates, nodes, health, cache, audit"],
  ["↑ ↓ or j k", "Move in the table"],
  ["x or Space", "Choose the row"],
  ["Enter", "Open the row"],
  ["?", "Show this help"],
];
const places: Readonly<Record<string, string>> = { s: "sandboxes", f: "forks", e: "templates", n: "nodes", h: "health", d: "cache", a: "audit" };
let isGoing = false;

function onKey(event: KeyboardEvent): void {
  if (signed.value.state !== "in") return;
  if ((event.ctrlKey || event.metaKey) && event.key === "k") {
    event.preventDefault();
    openPalette();
    return;
  }
  const target = event.target as Element;
  if (event.ctrlKey || event.metaKey || event.altKey || isDialogOpen() || target.closest("input:not([type=checkbox]), textarea, select, .xterm") !== null)
    return;
  if (isGoing) {
    isGoing = false;
    const place = places[event.key];
    if (place !== undefined) go(to([place]));
    return;
  }
  // From outside the table these keys enter it; inside it, its rows take them.
  const isMove = ["j", "k", "ArrowDown", "ArrowUp"].includes(event.key) && target.closest("tr[tabindex]") === null;
  const entry = isMove ? document.querySelector<HTMLElement>("tr[tabindex]") : null;
  if (entry !== null) {
    event.preventDefault();
    entry.focus();
    return;
  }
  const acts: Readonly<Record<string, () => void>> = {
    "/": () => document.getElementById("filter")?.focus(),
    c: () => openCreate(),
    t() {
      const [view, id = focused.value] = path.value;
      if (view === "sandboxes" || view === undefined) if (id !== "") go(to(["sandboxes", id, "terminal"]));
    },
    g() {
      isGoing = true;
    },
    "?": () => openDialog({ title: "Keys", body: () => <Keys /> }),
  };
  const act = acts[event.key];
  if (act === undefined) return;
  event.preventDefault();
  act();
}

const openPalette = () => openDialog({ title: "Go to or do", body: () => <Palette /> });

function Keys(): JSX.Element {
  return (
    <table class="keys">
      <tbody>
        {shortcuts.map(([keys, does]) => (
          <tr key={keys}>
            <th scope="row">
              <kbd>{keys}</kbd>
            </th>
            <td>{does}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function App(): JSX.Element {
  const { value } = signed;
  if (value.state === "unknown") return <main class="sign-in" aria-busy="true" />;
  if (value.state === "out") return <SignIn />;
  const { session } = value;
  const shown = views.filter((view) => view.fits(session));
  const [name = shown[0]?.name ?? "", id] = path.value;
  const isOfSandboxes = views.some((view) => view.name === name && !view.fits(session)) && !servesSandboxes(session);
  const view = shown.find((each) => each.name === name);
  document.title = `${id ?? view?.title ?? "svc"} · ${session.title}`;
  return (
    <div class="frame">
      <a class="skip" href="#main">
        Skip to the content
      </a>
      <nav aria-label="Views">
        <a href={to([])} class="brand">
          {session.title}
        </a>
        <ul>
          {shown.map((each) => (
            <li key={each.name}>
              <a href={to([each.name])} aria-current={each.name === name ? "page" : undefined}>
                {each.title}
              </a>
            </li>
          ))}
        </ul>
        <div class="nav-end">
          <span class={`link ${connection.value}`}>{connection.value === "up" ? "live" : connection.value === "down" ? "reconnecting …" : "connecting …"}</span>
          {session.isReadOnly ? <span class="tag">read-only</span> : null}
          <button type="button" class="small" onClick={openPalette} aria-keyshortcuts="Control+K">
            Find
          </button>
          <button type="button" class="small" onClick={() => openDialog({ title: "Keys", body: () => <Keys /> })} aria-keyshortcuts="?">
            Keys
          </button>
          <button type="button" class="small" onClick={() => void signOut()}>
            Sign out
          </button>
          <small class="muted">{session.version}</small>
        </div>
      </nav>
      <main id="main" tabIndex={-1}>
        <Banner />
        {view === undefined ? (
          <section class="page">
            <h1>{isOfSandboxes ? "Not here" : "There is no such view"}</h1>
            {isOfSandboxes ? (
              <p>
                {session.title} runs no sandboxes: this console shows the cache. The console of a node or a gateway shows them, at its own <code>/console</code>
                .
              </p>
            ) : null}
            <p>
              <a href={to([])}>Go to the first view</a>
            </p>
          </section>
        ) : name === "sandboxes" && id !== undefined ? (
          <Sandbox key={id} id={id} />
        ) : name === "sandboxes" ? (
          <Sandboxes />
        ) : (
          <view.View key={name} id={id} />
        )}
      </main>
      <Dialogs />
      <Toasts />
    </div>
  );
}

/** Shows that the page is not up to date, and what to do about it. */
function Banner(): JSX.Element | null {
  if (connection.value === "down")
    return (
      <div class="banner bad" role="alert">
        The server does not answer; this page shows what it last said, and connects again by itself. If it stays away: <code>./svc up -d</code>
      </div>
    );
  if (trouble.value !== "")
    return (
      <div class="banner warn" role="alert">
        The events of the deployment do not arrive, so the table may be old: {trouble.value}
      </div>
    );
  return null;
}
