// Restores the former process's state: its snapshot, its registrations, those of the configuration. What cannot be restored is quarantined
// with its name.

import { Failure } from "@svc/contract/failures.ts";
import type { Registration } from "@svc/contract/indexer.ts";
import type { Log } from "@svc/kit/log.ts";
import type { PeerClient } from "@svc/kit/peers/peer-client.ts";
import type { NativeIndex } from "../index/native.ts";
import type { Quarantine } from "../registrations/quarantine.ts";
import { keyOf, nameOf } from "../registrations/register-input.ts";
import { RegistrationFiles } from "../registrations/registration-files.ts";
import type { IndexerSettings } from "../settings.ts";
import type { Registry, SavedSubscription } from "./registry.ts";
import { fetchSibling } from "./sibling.ts";
import type { Snapshots } from "./snapshot.ts";

const MIB = 1024 * 1024;

export type StartOptions = {
  readonly settings: IndexerSettings;
  readonly configured: readonly Registration[];
  readonly index: NativeIndex;
  readonly registry: Registry;
  readonly snapshots: Snapshots;
  readonly quarantine: Quarantine;
  readonly log: Log;
  readonly folder: string;
  readonly siblings: PeerClient;
};

/** Loads the snapshot first, then the registrations, so that each finds its former blocks and requests only what came since. */
export async function restoreState(options: StartOptions): Promise<void> {
  const { settings, configured, index, registry, snapshots, log } = options;
  const { registrations, unreadable, formerUnreadable } = registry.files.load();
  const wanted = new Map<string, Registration>();
  for (const registration of [...registrations, ...configured]) wanted.set(keyOf(registration), registration);
  let saved = snapshots.load();
  // The snapshot also has the registrations whose files cannot be read.
  for (const { registration } of saved)
    if (!wanted.has(keyOf(registration)) && (formerUnreadable || unreadable.has(RegistrationFiles.nameOf(registration))))
      wanted.set(keyOf(registration), registration);
  if (saved.length === 0 && settings.bootstrap_from !== "") {
    saved = await bootstrapped(options);
    for (const { registration } of saved) wanted.set(keyOf(registration), registration);
  }
  const former = new Map<string, SavedSubscription>();
  for (const one of saved) {
    // Blocks of a registration that is gone, or has changed, belong to no one.
    const registration = wanted.get(keyOf(one.registration));
    if (registration !== undefined && JSON.stringify(registration) === JSON.stringify(one.registration)) former.set(keyOf(registration), one);
    else forget(index, one);
  }
  for (const [key, registration] of wanted) await beginOne(options, registration, former.get(key));
  const onDisk = new Map(registrations.map((registration) => [keyOf(registration), JSON.stringify(registration)]));
  try {
    for (const [key, registration] of wanted)
      if (onDisk.get(key) !== JSON.stringify(registration) || !registry.files.has(registration)) await registry.files.keep(registration);
    await registry.files.forgetFormer();
  } catch (error) {
    log.error({ err: error }, "registrations from settings or a sibling could not be written; the next start reads them from there again");
  }
}

function forget(index: NativeIndex, { id, remembered: { former } }: SavedSubscription): void {
  index.unsubscribe(id);
  if (former !== undefined) index.unsubscribe(former);
}

async function beginOne({ registry, quarantine }: StartOptions, registration: Registration, saved: SavedSubscription | undefined): Promise<void> {
  try {
    await registry.register(registration, { saved, kept: true });
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    // The record stays, so the next start retries.
    quarantine.note(nameOf(registration), `this registration could not begin: ${error.message}`);
  }
}

async function bootstrapped({ settings, snapshots, quarantine, folder, siblings }: StartOptions): Promise<SavedSubscription[]> {
  try {
    const maxBytes = 2 * settings.memory_budget_mb * MIB + 64 * MIB;
    return snapshots.loadFrom(await fetchSibling({ url: settings.bootstrap_from, apiKey: settings.api_key, folder, maxBytes, peers: siblings }));
  } catch (error) {
    if (!(error instanceof Failure) || error.name !== "DISK_FULL") throw error;
    quarantine.note(settings.bootstrap_from, error.message);
    return [];
  }
}
