// The files of a sandbox: browse, view, edit text, upload by dragging, download.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { confirm, openDialog, setUnsaved } from "../dialog.tsx";
import { bytes, count } from "../format.ts";
import { Empty, Field, Problem, textFrom } from "../parts.tsx";
import { query, setQuery } from "../router.ts";
import { messageOf, request, send } from "../session.ts";
import { say } from "../toasts.tsx";
import type { TabProps } from "./sandbox.tsx";

type Entry = {
  readonly name: string;
  readonly path: string;
  readonly type: "file" | "directory" | "other";
  readonly sizeBytes: number;
  readonly mode: number;
  readonly owner: string;
  readonly symlinkTarget?: string;
};

/** Larger files are downloaded instead of shown. */
const MAX_SHOWN = 1024 * 1024;
const MAX_ROWS = 1_000;
const images: Readonly<Record<string, string>> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };

const parentOf = (path: string) => path.slice(0, path.lastIndexOf("/")) || "/";
const below = (folder: string, name: string) => `${folder === "/" ? "" : folder}/${name}`;

export function Files({ row }: TabProps): JSX.Element {
  const folder = query.value.get("path") ?? "/home/user";
  const [list, setList] = useState<readonly Entry[]>();
  const [problem, setProblem] = useState("");
  const [isOver, setOver] = useState(false);
  const act = <T,>(members: object) => request<{ value: T }>(`inside/${row.id}`, members).then(({ value }) => value);
  const read = () =>
    act<Entry[]>({ verb: "list", path: folder }).then(
      (found) => {
        setList([...found].sort((a, b) => Number(b.type === "directory") - Number(a.type === "directory") || a.name.localeCompare(b.name)));
        setProblem("");
      },
      (error: unknown) => setProblem(messageOf(error)),
    );
  useEffect(() => void read(), [row.id, folder]);
  const enter = (path: string) => setQuery({ path });
  const upload = async (files: readonly File[]) => {
    for (const file of files) {
      try {
        await send(`files/${row.id}?${new URLSearchParams({ path: below(folder, file.name) })}`, file);
        say(`Uploaded ${file.name} (${bytes(file.size)}).`);
      } catch (error) {
        say(`${file.name}: ${messageOf(error)}`, "bad");
      }
    }
    await read();
  };
  const download = async (entry: Entry) => {
    try {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await content(row.id, entry.path));
      link.download = entry.name;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    } catch (error) {
      say(messageOf(error), "bad");
    }
  };
  const remove = (entry: Entry) =>
    confirm({
      title: `Delete ${entry.name}?`,
      loses: `${entry.path}${entry.type === "directory" ? " and everything in it" : ""} is lost.`,
      act: "Delete",
      onYes: () =>
        void act({ verb: "remove", path: entry.path }).then(
          () => read(),
          (error: unknown) => say(messageOf(error), "bad"),
        ),
    });
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: dropping is an addition to the button that uploads
    <div
      class={`files scroll ${isOver ? "over" : ""}`}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void upload([...(event.dataTransfer?.files ?? [])]);
      }}
    >
      <div class="bar">
        <Crumbs folder={folder} onEnter={enter} />
        <span class="gap" />
        <label class="button">
          Upload
          <input
            type="file"
            multiple
            class="hidden"
            onChange={(event) => {
              void upload([...(event.currentTarget.files ?? [])]);
              event.currentTarget.value = "";
            }}
          />
        </label>
        <button
          type="button"
          onClick={() => openDialog({ title: "New file", body: () => <NewFile folder={folder} id={row.id} onSaved={() => void read()} /> })}
        >
          New file
        </button>
        <button type="button" onClick={() => void read()}>
          Reload
        </button>
      </div>
      <Problem error={problem} />
      {list?.length === 0 ? <Empty title="This folder is empty. Drop files here to upload them." /> : null}
      <table>
        <tbody>
          {folder === "/" ? null : (
            <tr>
              <td class="text">
                <button type="button" class="plain" onClick={() => enter(parentOf(folder))}>
                  ../
                </button>
              </td>
              <td colSpan={4} />
            </tr>
          )}
          {list?.slice(0, MAX_ROWS).map((entry) => (
            <tr key={entry.path}>
              <td class="text">
                <button
                  type="button"
                  class="plain"
                  onClick={() =>
                    entry.type === "directory"
                      ? enter(entry.path)
                      : openDialog({ title: entry.path, isWide: true, body: () => <View id={row.id} entry={entry} onSaved={() => void read()} /> })
                  }
                >
                  {visible(entry.name)}
                  {entry.type === "directory" ? "/" : ""}
                </button>
                {entry.symlinkTarget === undefined ? null : <span class="muted"> → {entry.symlinkTarget}</span>}
              </td>
              <td class="number">{entry.type === "file" ? bytes(entry.sizeBytes) : ""}</td>
              <td>
                <code>{(entry.mode & 0o7777).toString(8).padStart(4, "0")}</code>
              </td>
              <td>{entry.owner}</td>
              <td class="acts">
                {entry.type === "file" ? (
                  <button type="button" class="small" aria-label={`Download ${entry.name}`} onClick={() => void download(entry)}>
                    Download
                  </button>
                ) : null}
                <button type="button" class="small danger" aria-label={`Delete ${entry.name}`} onClick={() => remove(entry)}>
                  Delete
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {(list?.length ?? 0) > MAX_ROWS ? <p class="muted">{count((list?.length ?? 0) - MAX_ROWS)} more are not shown.</p> : null}
    </div>
  );
}

/** Shows what a name would hide: line breaks, further spaces, and characters that turn the direction of the text. */
function visible(name: string): string {
  return name.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]|(?<= ) /gu, (each) => (each === " " ? "\u00a0" : `\\u{${each.codePointAt(0)?.toString(16)}}`));
}

function Crumbs({ folder, onEnter }: { readonly folder: string; readonly onEnter: (path: string) => void }): JSX.Element {
  const words = folder.split("/").filter((word) => word !== "");
  return (
    <nav class="crumbs" aria-label="Folder">
      <button type="button" class="plain" onClick={() => onEnter("/")}>
        /
      </button>
      {words.map((word, at) => (
        <button key={words.slice(0, at + 1).join("/")} type="button" class="plain" onClick={() => onEnter(`/${words.slice(0, at + 1).join("/")}`)}>
          {word}/
        </button>
      ))}
    </nav>
  );
}

async function content(id: string, path: string): Promise<Blob> {
  return await (await send(`files/${id}?${new URLSearchParams({ path })}`)).blob();
}

function View({ id, entry, onSaved }: { readonly id: string; readonly entry: Entry; readonly onSaved: () => void }): JSX.Element {
  const [text, setText] = useState<string>();
  const [image, setImage] = useState("");
  const [problem, setProblem] = useState("");
  const type = images[entry.name.split(".").at(-1)?.toLowerCase() ?? ""];
  useEffect(() => {
    if (entry.sizeBytes > MAX_SHOWN) return setProblem(`This file has ${bytes(entry.sizeBytes)}: download it to read it.`);
    let url = "";
    content(id, entry.path).then(
      async (blob) => {
        if (type !== undefined) return setImage((url = URL.createObjectURL(new Blob([blob], { type }))));
        const read = new Uint8Array(await blob.arrayBuffer());
        if (read.includes(0)) setProblem("This file is not text: download it to read it.");
        else setText(new TextDecoder().decode(read));
      },
      (error: unknown) => setProblem(messageOf(error)),
    );
    return () => URL.revokeObjectURL(url);
  }, [id, entry.path]);
  const save = async () => {
    try {
      await send(`files/${id}?${new URLSearchParams({ path: entry.path })}`, new Blob([text ?? ""]));
      setUnsaved(false);
      say(`Saved ${entry.path}.`);
      onSaved();
    } catch (error) {
      setProblem(messageOf(error));
    }
  };
  return (
    <>
      <Problem error={problem} />
      {image === "" ? null : <img src={image} alt={entry.name} />}
      {text === undefined ? null : (
        <>
          <textarea
            class="editor"
            aria-label={`Text of ${entry.name}`}
            spellcheck={false}
            rows={24}
            value={text}
            onInput={(event) => {
              setUnsaved(true);
              setText(textFrom(event));
            }}
            onKeyDown={(event) => {
              if (event.key !== "s" || !(event.ctrlKey || event.metaKey)) return;
              event.preventDefault();
              void save();
            }}
          />
          <footer>
            <button type="button" class="primary" onClick={() => void save()}>
              Save
            </button>
          </footer>
        </>
      )}
    </>
  );
}

function NewFile({ folder, id, onSaved }: { readonly folder: string; readonly id: string; readonly onSaved: () => void }): JSX.Element {
  const [name, setName] = useState("");
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        const path = below(folder, name);
        void send(`files/${id}?${new URLSearchParams({ path })}`, new Blob([""])).then(
          () => {
            onSaved();
            const entry: Entry = { name, path, type: "file", sizeBytes: 0, mode: 0, owner: "" };
            openDialog({ title: path, isWide: true, body: () => <View id={id} entry={entry} onSaved={onSaved} /> });
          },
          (error: unknown) => say(messageOf(error), "bad"),
        );
      }}
    >
      <Field label={`Name in ${folder}`}>
        <input required pattern="[^\/]+" value={name} onInput={(event) => setName(textFrom(event))} />
      </Field>
      <footer>
        <button type="submit" class="primary">
          Create
        </button>
      </footer>
    </form>
  );
}
