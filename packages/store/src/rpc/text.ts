// Texts on the wire and in the native core: UTF-8 bytes, one per character.

const ASCII = /^[\0-\x7f]*$/;

export const toWire = (text: string): string => (ASCII.test(text) ? text : Buffer.from(text).toString("latin1"));
export const fromWire = (text: string): string => (ASCII.test(text) ? text : Buffer.from(text, "latin1").toString());
