// Egress rules as clients write them: the accepted spellings, their normal form, and the reasons of refusals.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Failure } from "@svc/contract/failures.ts";
import fc from "fast-check";
import { formatAddress } from "../src/egress/cidr.ts";
import { addressRefusal, nameAllowed, nameRefusal, openEgress, readPolicy, sameEgress } from "../src/egress/policy.ts";
import { coversAll, formatRanges, mergeRanges } from "../src/egress/ranges.ts";
import { type EgressInput, egressOf as policyOf } from "../src/egress/rules.ts";

const egressOf = (input: EgressInput) => policyOf(input, { tokens: [], seal: (password) => `sealed ${password}` });

const denyAll = ["0.0.0.0/0"];

void test("absent and null rules are the open policy", () => {
  for (const input of [{}, { allowOut: null, denyOut: null, allow_internet_access: null }, { allowOut: [], denyOut: [], allow_internet_access: true }]) {
    assert.ok(sameEgress(egressOf(input), openEgress));
  }
});

void test("rules are kept in one spelling: aligned blocks, names in lower case without a trailing dot", () => {
  const input = {
    allowOut: ["1.2.3.4/24", "8.8.8.8", "WWW.Example.com.", "*.Pkg.Example.ORG", "münchen.example", "_srv.example.com", "registry"],
    denyOut: denyAll,
  };
  assert.deepEqual(egressOf(input).allowOut, [
    "1.2.3.0/24",
    "8.8.8.8",
    "www.example.com",
    "*.pkg.example.org",
    "xn--mnchen-3ya.example",
    "_srv.example.com",
    "registry",
  ]);
  assert.deepEqual(egressOf({ denyOut: ["::/0", "2001:DB8::/32", "9.9.9.9/32"] }).denyOut, ["::/0", "2001:db8::/32", "9.9.9.9/32"]);
});

void test("an invalid rule is refused with its position, the text found and the expected form", () => {
  const cases: [{ allowOut?: string[]; denyOut?: string[]; allow_internet_access?: boolean }, RegExp][] = [
    [{ allowOut: ["1.1.1.1", "256.1.1.1"] }, /^network\.allowOut\[1\]: "256\.1\.1\.1": is not an IPv4 address or block/],
    [{ allowOut: ["1.1.1.1/33"] }, /prefix length, 0 to 32$/],
    [{ allowOut: ["1.1.1.1/8/8"] }, /not an IPv4 address or block/],
    [{ allowOut: ["0x7f000001"] }, /not an IPv4 address or block/],
    [{ allowOut: ["2130706433"] }, /not an IPv4 address or block/],
    [{ allowOut: ["１２７.0.0.1"], denyOut: denyAll }, /not an IPv4 address or block|not a CIDR block/],
    [{ allowOut: ["2001:db8::1"] }, /^network\.allowOut\[0\]: "2001:db8::1": IPv6 is closed/],
    [{ allowOut: ["[::1]:80"] }, /IPv6 is closed/],
    [{ allowOut: ["*"], denyOut: denyAll }, /write 0\.0\.0\.0\/0/],
    [{ allowOut: ["api.*.com"], denyOut: denyAll }, /a wildcard is/],
    [{ allowOut: ["*.*.com"], denyOut: denyAll }, /a wildcard is/],
    [{ allowOut: ["https://example.com"], denyOut: denyAll }, /is not a CIDR block, address or domain.* without scheme, port or path$/],
    [{ allowOut: ["example.com/path"], denyOut: denyAll }, /without scheme, port or path$/],
    [{ allowOut: ["example.com:443"], denyOut: denyAll }, /without scheme, port or path$/],
    [{ allowOut: ["1.2.3.4:443"] }, /without scheme, port or path$/],
    [{ allowOut: ["-bad.example.com"], denyOut: denyAll }, /is not a CIDR block, address or domain/],
    [{ allowOut: ["a..b"], denyOut: denyAll }, /is not a CIDR block, address or domain/],
    [{ allowOut: [""], denyOut: denyAll }, /is not a CIDR block, address or domain/],
    [{ allowOut: [`${"a".repeat(64)}.com`], denyOut: denyAll }, /is not a CIDR block, address or domain/],
    [{ denyOut: ["example.com"] }, /^network\.denyOut\[0\]: "example\.com": denyOut takes CIDR blocks and addresses/],
    [{ denyOut: ["fe80::1%eth0"] }, /not an IPv6 address or block/],
    [{ allowOut: ["1.1.1.1", "example.com"], denyOut: ["8.0.0.0/8"] }, /^network\.allowOut\[1\]: "example\.com": a domain needs denyOut to hold 0\.0\.0\.0\/0/],
  ];
  for (const [input, message] of cases) {
    assert.throws(
      () => egressOf(input),
      (failure: Failure) => failure.name === "INVALID_REQUEST" && message.test(failure.message),
      JSON.stringify(input),
    );
  }
  assert.ok(egressOf({ allowOut: ["example.com"], allow_internet_access: false }));
  assert.ok(egressOf({ allowOut: ["example.com"], denyOut: ["0.0.0.0/1", "128.0.0.0/1"] }));
});

void test("a rule read once reads the same again", () => {
  const rules = ["1.2.3.4/9", "*.Example.com", "8.8.8.8", "bücher.example."];
  const once = egressOf({ allowOut: rules, denyOut: denyAll });
  assert.ok(sameEgress(egressOf({ ...once, allow_internet_access: once.allowInternet }), once));
});

void test("a wildcard matches names at any depth below, not for the domain itself or one that merely has the same ending", () => {
  const read = readPolicy(egressOf({ allowOut: ["*.example.com", "one.test"], denyOut: denyAll }));
  for (const name of ["a.example.com", "a.b.c.example.com", "one.test"]) assert.ok(nameAllowed(read, name), name);
  for (const name of ["example.com", "notexample.com", ".example.com", "a.one.test", "example.com.evil.test", ""]) assert.ok(!nameAllowed(read, name), name);
});

void test("the reason of a denial names the rule that matched", () => {
  const reason = (input: Parameters<typeof egressOf>[0], address: string): string => addressRefusal(readPolicy(egressOf(input)), address);
  assert.equal(reason({ denyOut: ["8.8.0.0/16", "9.0.0.0/8"] }, "9.9.9.9"), "matches denyOut 9.0.0.0/8");
  assert.equal(reason({ denyOut: denyAll }, "9.9.9.9"), "denyOut holds 0.0.0.0/0");
  assert.equal(reason({ allowOut: ["1.1.1.1"], denyOut: denyAll }, "9.9.9.9"), "matches no allowOut rule and denyOut holds 0.0.0.0/0");
  assert.equal(reason({ allow_internet_access: false }, "9.9.9.9"), "allow_internet_access is false");
  assert.match(nameRefusal(readPolicy(egressOf({ allow_internet_access: false })), "a.test") ?? "", /no internet access/);
  assert.equal(nameRefusal(readPolicy(openEgress), undefined), undefined);
});

const cidr = fc
  .tuple(fc.nat(2 ** 32 - 1), fc.integer({ min: 0, max: 32 }))
  .map(([address, prefixLength]) => ({ base: address - (address % 2 ** (32 - prefixLength)), prefixLength }));

void test("merged ranges contain exactly the addresses of their blocks, in order and disjoint", () => {
  fc.assert(
    fc.property(fc.array(cidr, { maxLength: 12 }), fc.nat(2 ** 32 - 1), (cidrs, address) => {
      const ranges = mergeRanges(cidrs);
      const within = cidrs.some(({ base, prefixLength }) => address >= base && address < base + 2 ** (32 - prefixLength));
      assert.equal(
        ranges.some(({ first, last }) => address >= first && address <= last),
        within,
      );
      for (const [at, range] of ranges.entries()) assert.ok(at === 0 || range.first > (ranges[at - 1]?.last ?? 0) + 1);
    }),
  );
  assert.ok(
    coversAll(
      mergeRanges([
        { base: 0, prefixLength: 1 },
        { base: 2 ** 31, prefixLength: 1 },
      ]),
    ),
  );
  assert.equal(formatRanges(mergeRanges([{ base: 16843009, prefixLength: 32 }])), formatAddress(16843009));
});
