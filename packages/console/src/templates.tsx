// Templates: the list, builds from a Dockerfile that is typed or dropped here, their steps as they run, tags, and the sandboxes of each template.
import type { ListedTemplate } from "@svc/contract/template.ts";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { openCreate } from "./acts.tsx";
import { Build } from "./build.tsx";
import { closeDialog, confirm, openDialog } from "./dialog.tsx";
import { count, megabytes } from "./format.ts";
import { Ago, Command, Empty, Field, Problem, Scroll, State, textFrom } from "./parts.tsx";
import { go, query, to } from "./router.ts";
import { events, rows, version } from "./rows.ts";
import { call, isReadOnly, messageOf, pages, request } from "./session.ts";
import { say } from "./toasts.tsx";
import type { ViewProps } from "./views.tsx";

export function Templates({ id }: ViewProps): JSX.Element {
  return id === undefined ? <List /> : <Detail key={id} id={id} />;
}

function List(): JSX.Element {
  void version.value;
  const [list, setList] = useState<readonly ListedTemplate[]>();
  const [problem, setProblem] = useState("");
  const mark = events.filter(({ type }) => type.startsWith("template.")).length;
  useEffect(() => {
    pages<ListedTemplate>("listTemplatesV2").then(
      (found) => {
        setList(found);
        setProblem("");
      },
      (error: unknown) => setProblem(messageOf(error)),
    );
  }, [mark]);
  const users = new Map<string, number>();
  for (const row of rows.values()) if (row.state !== "ended") users.set(row.template, (users.get(row.template) ?? 0) + 1);
  return (
    <section class="page fill">
      <header class="page-head">
        <h1>Templates</h1>
        <span class="gap" />
        {isReadOnly() ? null : (
          <button type="button" class="primary" onClick={() => openDialog({ title: "Build a template", isWide: true, body: () => <NewBuild /> })}>
            Build
          </button>
        )}
      </header>
      <Problem error={problem} />
      {list === undefined ? <Empty title="Reading the list …" /> : null}
      {list?.length === 0 ? (
        <Empty title="There is no template.">
          <Command text="./svc template build . --name NAME" />
        </Empty>
      ) : null}
      <Scroll label="Templates">
        <table>
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">Status</th>
              <th scope="col" class="number">
                CPU
              </th>
              <th scope="col" class="number">
                Memory
              </th>
              <th scope="col" class="number">
                Sandboxes now
              </th>
              <th scope="col" class="number">
                Started from it
              </th>
              <th scope="col" class="number">
                Updated
              </th>
            </tr>
          </thead>
          <tbody>
            {list?.map((template) => (
              <tr key={template.templateID}>
                <th scope="row">
                  <a href={to(["templates", template.templateID])}>{template.names[0] ?? template.aliases[0] ?? template.templateID}</a>
                </th>
                <td>
                  <State state={template.buildStatus} />
                </td>
                <td class="number">{template.cpuCount}</td>
                <td class="number">{megabytes(template.memoryMB)}</td>
                <td class="number">{count(users.get(template.templateID) ?? 0)}</td>
                <td class="number">{count(template.spawnCount)}</td>
                <td class="number">
                  <Ago at={Date.parse(template.updatedAt)} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}

type Found = ListedTemplate & { readonly builds: readonly { readonly buildID: string; readonly status: string; readonly createdAt: string }[] };
type Tag = { readonly tag: string; readonly buildID: string };

function Detail({ id }: { readonly id: string }): JSX.Element {
  void version.value;
  const [found, setFound] = useState<Found>();
  const [tags, setTags] = useState<readonly Tag[]>([]);
  const [problem, setProblem] = useState("");
  const mark = events.filter(({ templateID }) => templateID === id).length;
  const read = () =>
    Promise.all([
      call<Found>("getTemplate", { templateID: id }).then(setFound),
      call<Tag[]>("listTags", { templateID: id }).then(setTags, () => setTags([])),
    ]).then(
      () => setProblem(""),
      (error: unknown) => setProblem(messageOf(error)),
    );
  useEffect(() => void read(), [id, mark]);
  const name = found?.names[0] ?? found?.aliases[0] ?? id;
  const users = [...rows.values()].filter(({ template, state }) => template === found?.templateID && state !== "ended");
  const buildID = query.value.get("build") ?? found?.builds[0]?.buildID;
  const remove = () =>
    confirm({
      title: `Delete the template ${name}?`,
      loses: "Its files and its builds are lost. Sandboxes that run go on.",
      act: "Delete",
      onYes: () =>
        void call("deleteTemplate", { templateID: id }).then(
          () => {
            say(`Deleted ${name}.`);
            go(to(["templates"]));
          },
          (error: unknown) => say(messageOf(error), "bad"),
        ),
    });
  const assign = (text: string) =>
    void call("assignTags", { target: name, tags: [text] }).then(
      () => {
        say(`${name}:${text} names its newest build.`);
        return read();
      },
      (error: unknown) => say(messageOf(error), "bad"),
    );
  return (
    <section class="page fill">
      <header class="page-head">
        <h1>
          <a href={to(["templates"])}>Templates /</a> {name}
        </h1>
        {found === undefined ? null : <State state={found.buildStatus} />}
        <span class="gap" />
        {isReadOnly() ? null : (
          <>
            <button type="button" class="primary" onClick={() => openCreate(name)}>
              Create a sandbox
            </button>
            <button type="button" onClick={() => openDialog({ title: `Tag ${name}`, body: () => <NewTag onTag={assign} /> })}>
              Tag
            </button>
            <button type="button" class="danger" onClick={remove}>
              Delete
            </button>
          </>
        )}
      </header>
      <Problem error={problem} />
      <Scroll label="Templates" kind="columns">
        <div>
          <dl>
            <dt>Id</dt>
            <dd>{id}</dd>
            <dt>Sandboxes now</dt>
            <dd>
              <a href={to(["sandboxes"], { q: id })}>{count(users.length)}</a>
            </dd>
            <dt>Started from it</dt>
            <dd>{count(found?.spawnCount ?? 0)}</dd>
            <dt>Tags</dt>
            <dd>
              {tags.length === 0 ? <span class="muted">none</span> : null}
              {tags.map(({ tag, buildID: of }) => (
                <div key={tag}>
                  <code>{tag}</code> <a href={to(["templates", id], { build: of })}>{of.slice(0, 12)}</a>
                </div>
              ))}
            </dd>
            <dt>Builds</dt>
            <dd>
              {found?.builds.map((build) => (
                <div key={build.buildID}>
                  <a href={to(["templates", id], { build: build.buildID })} aria-current={build.buildID === buildID ? "true" : undefined}>
                    {build.buildID.slice(0, 12)}
                  </a>{" "}
                  <State state={build.status} /> <Ago at={Date.parse(build.createdAt)} />
                </div>
              ))}
            </dd>
          </dl>
        </div>
        {buildID === undefined ? null : <Build key={buildID} templateID={id} buildID={buildID} />}
      </Scroll>
    </section>
  );
}

function NewTag({ onTag }: { readonly onTag: (tag: string) => void }): JSX.Element {
  const [tag, setTag] = useState("");
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        closeDialog();
        onTag(tag);
      }}
    >
      <Field label="Tag">
        <input required pattern="[A-Za-z0-9][A-Za-z0-9_.\-]*" value={tag} onInput={(event) => setTag(textFrom(event))} />
      </Field>
      <footer>
        <button type="submit" class="primary">
          Tag
        </button>
      </footer>
    </form>
  );
}

function NewBuild(): JSX.Element {
  const [name, setName] = useState("");
  const [text, setText] = useState("FROM debian:bookworm\nRUN apt-get update && apt-get install -y --no-install-recommends curl\n");
  const [problem, setProblem] = useState("");
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      const { templateID, buildID, notes } = await request<{ templateID: string; buildID: string; notes: string[] }>("build", { name, dockerfile: text });
      closeDialog();
      for (const note of notes) say(note);
      go(to(["templates", templateID], { build: buildID }));
    } catch (error) {
      setProblem(messageOf(error));
    }
  };
  return (
    <form
      onSubmit={(event) => void submit(event)}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        const [file] = event.dataTransfer?.files ?? [];
        if (file === undefined) return;
        event.preventDefault();
        void file.text().then(setText);
      }}
    >
      <Field label="Name">
        <input required value={name} onInput={(event) => setName(textFrom(event))} />
      </Field>
      <Field label="Dockerfile" hint="Type it, or drop a file here. COPY needs a build context: use ./svc template build.">
        <textarea class="editor" rows={12} required spellcheck={false} value={text} onInput={(event) => setText(textFrom(event))} />
      </Field>
      <Problem error={problem} />
      <footer>
        <button type="button" onClick={closeDialog}>
          Cancel
        </button>
        <button type="submit" class="primary">
          Build
        </button>
      </footer>
    </form>
  );
}
