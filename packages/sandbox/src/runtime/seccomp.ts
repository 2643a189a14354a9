// Denies system calls to sandboxes on the host's own kernel: one list, as an OCI profile for runc and a BPF program for bubblewrap.

/** x86_64 and aarch64 numbers; -1 means that the architecture lacks the call. A denied call returns EPERM. */
// biome-ignore format: a table
const denied: Readonly<Record<string, readonly [number, number]>> = {
  // Kernel and machine
  acct: [163, 89], add_key: [248, 217], bpf: [321, 280], clock_adjtime: [305, 266], clock_settime: [227, 112], delete_module: [176, 106],
  finit_module: [313, 273], init_module: [175, 105], ioperm: [173, -1], iopl: [172, -1], kexec_file_load: [320, 294], kexec_load: [246, 104],
  keyctl: [250, 219], lookup_dcookie: [212, 18], perf_event_open: [298, 241], quotactl: [179, 60], quotactl_fd: [443, 443], reboot: [169, 142],
  request_key: [249, 218], settimeofday: [164, 170], swapoff: [168, 225], swapon: [167, 224], adjtimex: [159, 171], vhangup: [153, 58],
  // System calls that have allowed sandbox escapes, or widen the kernel's attack surface without need
  io_uring_enter: [426, 426], io_uring_register: [427, 427], io_uring_setup: [425, 425], open_by_handle_at: [304, 265], name_to_handle_at: [303, 264],
  userfaultfd: [323, 282], kcmp: [312, 272], process_vm_readv: [310, 270], process_vm_writev: [311, 271], pidfd_getfd: [438, 438],
  // Mounts and namespaces
  fsconfig: [431, 431], fsmount: [432, 432], fsopen: [430, 430], fspick: [433, 433], mount: [165, 40], mount_setattr: [442, 442], move_mount: [429, 429],
  move_pages: [279, 239], open_tree: [428, 428], pivot_root: [155, 41], setns: [308, 268], umount2: [166, 39], unshare: [272, 97],
};

/** Answered with ENOSYS: clone3 passes its flags by pointer, so a filter cannot read them, and the C library falls back to clone. */
const clone3 = 435;
const clone = { x64: 56, arm64: 220 };
/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. */
const namespaceFlags = 0x7e020000;

/**
 * Socket families that a sandbox may open: unspecified, unix, IPv4, IPv6, netlink, packet. The others ignore network namespaces (vsock reaches
 * the machine's host, and ports on which others on this machine listen) or expose kernel code without need.
 */
const socketFamilies = [0, 1, 2, 10, 16, 17];
/** No family known to a kernel has a higher number. */
const maxFamily = 63;
const socketCalls = { socket: [41, 198], socketpair: [53, 199] } as const;

const EPERM = 1;
const ENOSYS = 38;
const EAFNOSUPPORT = 97;

export type SeccompProfile = Readonly<Record<string, unknown>>;

export function ociSeccomp(): SeccompProfile {
  return {
    defaultAction: "SCMP_ACT_ALLOW",
    architectures: process.arch === "arm64" ? ["SCMP_ARCH_AARCH64"] : ["SCMP_ARCH_X86_64"],
    syscalls: [
      { names: Object.keys(denied), action: "SCMP_ACT_ERRNO", errnoRet: EPERM },
      { names: ["clone3"], action: "SCMP_ACT_ERRNO", errnoRet: ENOSYS },
      // There is one rule per bit, since a rule that masks all bits could only test for equality.
      ...bitsOf(namespaceFlags).map((bit) => ({
        names: ["clone"],
        action: "SCMP_ACT_ERRNO",
        errnoRet: EPERM,
        args: [{ index: 0, value: bit, valueTwo: bit, op: "SCMP_CMP_MASKED_EQ" }],
      })),
      // The kernel reads the low half of the argument only, and so must the rule.
      ...closedFamilies().map((family) => ({
        names: Object.keys(socketCalls),
        action: "SCMP_ACT_ERRNO",
        errnoRet: EAFNOSUPPORT,
        args: [{ index: 0, value: 0xffffffff, valueTwo: family, op: "SCMP_CMP_MASKED_EQ" }],
      })),
    ],
  };
}

function closedFamilies(): number[] {
  return Array.from({ length: maxFamily + 1 }, (_, family) => family).filter((family) => !socketFamilies.includes(family));
}

function bitsOf(mask: number): number[] {
  return Array.from({ length: 32 }, (_, bit) => 2 ** bit).filter((bit) => (mask & bit) !== 0);
}

// struct seccomp_data: nr at 0, arch at 4, args[0] (low half) at 16. struct sock_filter: u16 code, u8 jt, u8 jf, u32 k.
const LOAD = 0x20; // BPF_LD | BPF_W | BPF_ABS
const EQUAL = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const AT_LEAST = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const ANY_BIT = 0x45; // BPF_JMP | BPF_JSET | BPF_K
const RETURN = 0x06;
const ALLOW = 0x7fff0000;
const ERRNO = 0x00050000;
const KILL_PROCESS = 0x80000000;
const X32_BIT = 0x40000000;

type Instruction = readonly [code: number, jumpTrue: number, jumpFalse: number, value: number];

/** Returns the program that bubblewrap reads from a file descriptor. */
export function bpfSeccomp(): Buffer {
  const arm = process.arch === "arm64";
  const numbers = Object.values(denied)
    .map((pair) => pair[arm ? 1 : 0])
    .filter((number) => number >= 0);
  const program: Instruction[] = [
    [LOAD, 0, 0, 4],
    [EQUAL, 1, 0, arm ? 0xc00000b7 : 0xc000003e],
    [RETURN, 0, 0, KILL_PROCESS], // another instruction set numbers its system calls differently
    [LOAD, 0, 0, 0],
    ...(arm
      ? []
      : ([
          [AT_LEAST, 0, 1, X32_BIT],
          [RETURN, 0, 0, ERRNO | ENOSYS],
        ] satisfies Instruction[])),
    ...numbers.flatMap((number): Instruction[] => [
      [EQUAL, 0, 1, number],
      [RETURN, 0, 0, ERRNO | EPERM],
    ]),
    [EQUAL, 0, 1, clone3],
    [RETURN, 0, 0, ERRNO | ENOSYS],
    [EQUAL, 0, 4, arm ? clone.arm64 : clone.x64],
    [LOAD, 0, 0, 16],
    [ANY_BIT, 0, 1, namespaceFlags],
    [RETURN, 0, 0, ERRNO | EPERM],
    [RETURN, 0, 0, ALLOW],
    ...Object.values(socketCalls).flatMap((pair): Instruction[] => [
      // The argument is loaded for this call only, and every branch from here on returns.
      [EQUAL, 0, socketFamilies.length + 3, pair[arm ? 1 : 0]],
      [LOAD, 0, 0, 16],
      ...socketFamilies.map((family, index): Instruction => [EQUAL, socketFamilies.length - index, 0, family]),
      [RETURN, 0, 0, ERRNO | EAFNOSUPPORT],
      [RETURN, 0, 0, ALLOW],
    ]),
    [RETURN, 0, 0, ALLOW],
  ];
  const bytes = Buffer.alloc(program.length * 8);
  program.forEach(([code, jumpTrue, jumpFalse, value], index) => {
    bytes.writeUInt16LE(code, index * 8);
    bytes.writeUInt8(jumpTrue, index * 8 + 2);
    bytes.writeUInt8(jumpFalse, index * 8 + 3);
    bytes.writeUInt32LE(value >>> 0, index * 8 + 4);
  });
  return bytes;
}
