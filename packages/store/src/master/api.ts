// The master's /api/v1: states of segments, drain jobs, tenants' quotas, and removing everything.

import { exactText } from "@svc/contract/exact-text.ts";
import type { Answer, Request } from "@svc/kit/http/exchange.ts";
import { codeName, codes } from "../rpc/codes.ts";
import { type DrainJobs, type Job, jobStatus, MAX_CONCURRENCY } from "./drain.ts";
import { removeAll } from "./handlers.ts";
import type { Members } from "./members.ts";
import { type NativeMaster, segmentRows, type TenantRow, tenantRows } from "./native.ts";
import { misspeltTenant, searchNames, searchOf } from "./query.ts";

const JSON_TYPE = "application/json; charset=utf-8";
const MAX_NAME = 1_024;

export type ApiParts = {
  readonly native: NativeMaster;
  readonly drains: DrainJobs;
  readonly members: Members;
  readonly compat: boolean;
  readonly multiTenant: boolean;
  /** Resolves once all changes so far are durable. */
  whenDurable(): Promise<void>;
};

export type ApiRoute = (search: string, parts: ApiParts, request: Request) => Answer | Promise<Answer>;

export const json = (value: unknown, status = 200): Answer => ({ status, type: JSON_TYPE, body: Buffer.from(JSON.stringify(value)) });

/** Translates an error code to an answer. */
export function failed(code: number, message = codeName(code)): Answer {
  const notFounds: number[] = [codes.JOB_NOT_FOUND, codes.SEGMENT_NOT_FOUND, codes.OBJECT_NOT_FOUND, codes.TENANT_NOT_REGISTERED];
  const conflicts: number[] = [codes.UNAVAILABLE_IN_CURRENT_STATUS, codes.UNAVAILABLE_IN_CURRENT_MODE, codes.TENANT_NOT_EMPTY];
  const status =
    code === codes.INVALID_PARAMS ? 400 : notFounds.includes(code) ? 404 : conflicts.includes(code) ? 409 : code === codes.PERSISTENT_FAIL ? 507 : 500;
  return json({ success: false, error_code: code, error_message: message }, status);
}

const withoutTenants = (): Answer =>
  failed(codes.UNAVAILABLE_IN_CURRENT_MODE, "tenants are off, so that every key is in the same one: leave out tenant_id, or set store.enable_multi_tenants");

/** Returns a refusal for a request with an unusable tenant: what it requests for one tenant's keys would be done to others'. */
export function refuseTenant(search: string, multiTenant: boolean): Answer | undefined {
  const misspelt = misspeltTenant(searchNames(search));
  if (misspelt !== undefined) return failed(codes.INVALID_PARAMS, `there is no parameter ${misspelt}: a tenant is named by tenant_id`);
  return multiTenant || ["", "default"].includes(searchOf(search, "tenant_id") ?? "") ? undefined : withoutTenants();
}

/** The core's texts have one byte per character. */
const text = (wire: string) => Buffer.from(wire, "latin1").toString();

const invalid = (message: string) => failed(codes.INVALID_PARAMS, message);

/** Returns the body's object, or a message if it is not an object. */
function bodyOf({ body }: Request): Record<string, unknown> | string {
  let value: unknown;
  try {
    value = JSON.parse(exactText(body));
  } catch {
    return "the body is not valid JSON";
  }
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : "expected a JSON object as the body";
}

const statusNames = ["UNDEFINED", "MOUNTED", "DRAINING", "DRAINED", "GRACEFULLY_UNMOUNTING", "UNMOUNTING"];
export const statusName = (state: number, compat: boolean) => (compat && state === 1 ? "OK" : (statusNames[state] ?? "UNDEFINED"));

const segmentStatus: ApiRoute = (search, { native, compat }) => {
  const name = searchOf(search, "segment") ?? "";
  if (name === "") return invalid("Missing segment query parameter");
  const row = segmentRows(native).find((each) => each.name === name);
  if (row === undefined) return failed(codes.SEGMENT_NOT_FOUND);
  return json({ success: true, segment: name, status: row.state, status_name: statusName(row.state, compat), error_code: 0, error_message: "" });
};

const listClients: ApiRoute = (_search, { members }) =>
  json({
    clients: members.all().map(({ clientID, stableID, epoch, isHeard, segments }) => ({
      client_id: clientID,
      stable_id: text(stableID),
      epoch: Number(epoch),
      heard: isHeard,
      segments: segments.map(text),
    })),
  });

const removeEverything: ApiRoute = async (search, { native, multiTenant, whenDurable }, request) => {
  const body = request.body.length === 0 ? {} : bodyOf(request);
  if (typeof body === "string") return invalid(body);
  const tenant = searchOf(search, "tenant_id") ?? "";
  if (multiTenant && tenant !== "" && !tenantRows(native).some((row) => row.name === tenant)) return failed(codes.TENANT_NOT_REGISTERED);
  let removed = 0;
  for (const each of tenant === "" && multiTenant ? tenantRows(native).map(({ name }) => name) : [tenant]) {
    const count = await removeAll(native, each, searchOf(search, "force") === "true");
    if (count < 0) return failed(count);
    removed += count;
  }
  await whenDurable();
  return json({ success: true, removed_count: removed });
};

function shownJob(job: Job): object {
  return {
    success: true,
    job_id: job.id,
    type: 0,
    type_name: "DRAIN",
    status: job.status,
    status_name: jobStatus[job.status],
    created_at_ms_epoch: job.createdMs,
    last_updated_at_ms_epoch: job.updatedMs,
    segments: job.segments,
    target_segments: job.targets,
    max_concurrency: job.maxConcurrency,
    succeeded_units: job.succeeded,
    failed_units: job.failed,
    blocked_units: job.blocked,
    active_units: job.active.length,
    migrated_bytes: job.migratedBytes,
    message: job.message,
  };
}

function namesOf(value: unknown): string[] | undefined {
  const isName = (each: unknown): each is string => typeof each === "string" && each !== "" && each.length <= MAX_NAME;
  return Array.isArray(value) && value.length <= MAX_NAME && value.every(isName) ? [...new Set(value)] : undefined;
}

const createDrain: ApiRoute = async (_search, { drains, whenDurable }, request) => {
  const body = bodyOf(request);
  if (typeof body === "string") return invalid(body);
  const segments = namesOf(body["segments"]);
  const targets = namesOf(body["target_segments"] ?? []);
  const maxConcurrency = body["max_concurrency"] ?? 4;
  if (segments === undefined || segments.length === 0) return invalid("segments: expected a list of segment names");
  if (targets === undefined) return invalid("target_segments: expected a list of segment names");
  if (typeof maxConcurrency !== "number" || !Number.isInteger(maxConcurrency) || maxConcurrency < 1 || maxConcurrency > MAX_CONCURRENCY)
    return invalid(`max_concurrency: expected a whole number from 1 to ${MAX_CONCURRENCY}`);
  const created = drains.create({ segments, targets, maxConcurrency });
  if (!created.ok) return failed(created.code, created.code === codes.INVALID_PARAMS ? "a segment cannot be its own target" : codeName(created.code));
  await whenDurable();
  return json(shownJob(created.value));
};

const undrain: ApiRoute = async (_search, { drains, whenDurable }, request) => {
  const body = bodyOf(request);
  if (typeof body === "string") return invalid(body);
  const segments = namesOf(body["segments"]);
  if (segments === undefined || segments.length === 0) return invalid("segments: expected a list of segment names");
  const outcome = drains.undrain(segments);
  if (outcome === codes.SEGMENT_NOT_FOUND) return failed(outcome, "a segment of that name is not mounted");
  if (outcome === codes.UNAVAILABLE_IN_CURRENT_STATUS)
    return failed(outcome, "a drain job still empties one of them: cancel that job, which puts its segments back");
  if (outcome !== codes.OK) return failed(outcome);
  await whenDurable();
  return json({ success: true, segments });
};

const jobIn = (search: string, { drains }: ApiParts): Job | Answer => {
  const id = searchOf(search, "job_id") ?? "";
  if (id === "") return invalid("Missing job_id query parameter");
  return drains.find(id) ?? failed(codes.JOB_NOT_FOUND);
};

const queryDrain: ApiRoute = (search, parts) => {
  const job = jobIn(search, parts);
  return "body" in job ? job : json(shownJob(job));
};

const cancelDrain: ApiRoute = async (search, parts) => {
  const job = jobIn(search, parts);
  if ("body" in job) return job;
  const outcome = parts.drains.cancel(job);
  if (outcome !== codes.OK) return failed(outcome, `the job is ${jobStatus[job.status]}`);
  await parts.whenDurable();
  return json(shownJob(job));
};

function shownTenant({ name, registered, ...row }: TenantRow): object {
  const [requested, effective, charged] = [Number(row.quotaBytes), Number(row.effectiveBytes), Number(row.chargedBytes)];
  return {
    tenant_id: name,
    requested_quota_bytes: requested,
    effective_quota_bytes: effective,
    charged_bytes: charged,
    admission_closed: !registered || charged >= effective,
    over_quota: charged > effective,
    has_explicit_policy: registered,
  };
}

/** Wraps a route that requires tenants to be on. */
const withTenants =
  (route: ApiRoute): ApiRoute =>
  (search, parts, request) =>
    parts.multiTenant ? route(search, parts, request) : withoutTenants();

const getQuotas = withTenants((search, { native }) => {
  const name = searchOf(search, "tenant_id");
  const rows = tenantRows(native);
  if (name === undefined)
    return json({ success: true, tenants: rows.filter(({ registered, chargedBytes }) => registered || chargedBytes !== "0").map(shownTenant) });
  const row = rows.find((each) => each.name === name && (each.registered || each.chargedBytes !== "0"));
  return row === undefined ? failed(codes.TENANT_NOT_REGISTERED) : json({ success: true, ...shownTenant(row) });
});

const putQuota = withTenants(async (search, { native, whenDurable }, request) => {
  const body = bodyOf(request);
  if (typeof body === "string") return invalid(body);
  const name = searchOf(search, "tenant_id") ?? body["tenant_id"];
  const bytes = body["requested_quota_bytes"];
  if (typeof name !== "string" || name === "" || name.length > MAX_NAME) return invalid("tenant_id: expected a name");
  if (typeof bytes !== "number" || !Number.isSafeInteger(bytes) || bytes <= 0) return invalid("requested_quota_bytes: expected a whole number above 0");
  if (!native.canLog()) return failed(codes.PERSISTENT_FAIL);
  const tenant = native.addTenant(name);
  if (tenant < 0) return failed(codes.TASK_PENDING_LIMIT_EXCEEDED, "there are too many tenants");
  native.setQuota(tenant, true, bytes);
  await whenDurable();
  return json({ success: true, ...shownTenant(tenantRows(native)[tenant] as TenantRow) });
});

const deleteQuota = withTenants(async (search, { native, whenDurable }) => {
  const name = searchOf(search, "tenant_id") ?? "";
  const row = tenantRows(native).find((each) => each.name === name && each.registered);
  if (row === undefined) return failed(codes.TENANT_NOT_REGISTERED);
  if (row.chargedBytes !== "0") return failed(codes.TENANT_NOT_EMPTY, `the tenant has ${row.chargedBytes} bytes; remove them first`);
  if (!native.canLog()) return failed(codes.PERSISTENT_FAIL);
  native.setQuota(row.number, false, 0);
  await whenDurable();
  return json({ success: true });
});

/** The routes by method and path, each with one sentence for the API page. */
export const apiRoutes: Readonly<Record<string, readonly [does: string, route: ApiRoute]>> = {
  "GET /api/v1/segments/status": ["The state of the segment named by ?segment=NAME", segmentStatus],
  "POST /api/v1/segments/undrain": ["Puts segments that a drain job emptied, or failed to empty, back into use; the body names them", undrain],
  "GET /api/v1/clients": ["Clients, whether they are heard, and their segments", listClients],
  "POST /api/v1/remove_all": ["Removes every object, of one tenant with ?tenant_id=NAME; ?force=true those under a lease too", removeEverything],
  "POST /api/v1/drain_jobs": ["Starts a job that moves all objects off segments; the body names them", createDrain],
  "GET /api/v1/drain_jobs": ["All drain jobs", (_search, { drains }) => json({ success: true, jobs: drains.all.map(shownJob) })],
  "GET /api/v1/drain_jobs/query": ["The progress of the job named by ?job_id=ID", queryDrain],
  "POST /api/v1/drain_jobs/cancel": ["Cancels the job named by ?job_id=ID", cancelDrain],
  "GET /api/v1/tenant_quotas": ["Quotas and use of all tenants, or of ?tenant_id=NAME", getQuotas],
  "PUT /api/v1/tenant_quotas": ["Sets a tenant's quota in bytes; the body has tenant_id and requested_quota_bytes", putQuota],
  "DELETE /api/v1/tenant_quotas": ["Removes the quota of ?tenant_id=NAME, once it holds nothing", deleteQuota],
};
