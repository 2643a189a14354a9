// The parts of every sandbox's file system that its template does not contain: envd and the small file systems.
import type { Limits, RootImage } from "./runtime.ts";

/** envd has its own directory, since /usr may be a read-only bind of the host's. */
export const envdPathInside = "/.svc/envd";
/** The socket of the unprivileged driver's envd; /.svc is a small tmpfs there. */
export const socketPathInside = "/.svc/envd.sock";

export type TmpfsMount = { readonly destination: string; readonly mode: number; readonly sizeBytes: number };
export type BindMount = { readonly source: string; readonly destination: string };

const MEBIBYTE = 1024 * 1024;

/** Memory-backed directories; all of them count against the memory limit, and none may use all of it. */
export function tmpfsMounts(limits: Limits): TmpfsMount[] {
  const half = Math.max(16 * MEBIBYTE, Math.floor((limits.memoryMB * MEBIBYTE) / 2));
  return [
    { destination: "/run", mode: 0o755, sizeBytes: Math.min(64 * MEBIBYTE, half) },
    { destination: "/dev/shm", mode: 0o1777, sizeBytes: half },
  ];
}

/** Read-only binds: the template's own, then envd. */
export function bindMounts(image: RootImage, envdBinary: string): BindMount[] {
  return [...image.binds.map((path) => ({ source: path, destination: path })), { source: envdBinary, destination: envdPathInside }];
}

/** The environment of PID 1, where the caller does not override it. */
export const defaultEnvironment: Readonly<Record<string, string>> = {
  PATH: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
  HOME: "/root",
  LANG: "C.UTF-8",
};
