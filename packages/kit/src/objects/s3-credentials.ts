// Credentials for S3-compatible storage: from the environment, or from a file in the format of the AWS tools.
import { statSync } from "node:fs";
import { fail } from "@svc/contract/failures.ts";
import { readSecretFile } from "../secret.ts";

export type Credentials = { readonly accessKeyID: string; readonly secretAccessKey: string; readonly sessionToken: string | undefined };

/**
 * Returns a function that each request calls: it rereads a changed file, since its credentials may expire within hours. `setting` is the
 * file's setting.
 * @throws SETTING_INVALID if there are no credentials; no message contains the secrets.
 */
export function credentialsFrom(file: string, env: NodeJS.ProcessEnv, setting = "objects.credentials_file"): () => Credentials {
  if (file === "") {
    const { AWS_ACCESS_KEY_ID: accessKeyID = "", AWS_SECRET_ACCESS_KEY: secretAccessKey = "", AWS_SESSION_TOKEN: sessionToken } = env;
    if (accessKeyID === "" || secretAccessKey === "")
      fail("SETTING_INVALID", `S3 storage needs credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or ${setting}`);
    return () => ({ accessKeyID, secretAccessKey, sessionToken });
  }
  let readAtMs = -1;
  let credentials = readFrom(file, setting);
  return () => {
    const changedAtMs = statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? readAtMs;
    if (changedAtMs !== readAtMs) credentials = readFrom(file, setting);
    readAtMs = changedAtMs;
    return credentials;
  };
}

function readFrom(file: string, setting: string): Credentials {
  const text = readSecretFile(file) ?? fail("SETTING_INVALID", `setting ${setting}: ${file} is not there`);
  const value = (name: string) => new RegExp(`^[ \\t]*${name}[ \\t]*=[ \\t]*(\\S+)[ \\t]*$`, "im").exec(text)?.[1];
  const [accessKeyID, secretAccessKey] = [value("aws_access_key_id"), value("aws_secret_access_key")];
  if (accessKeyID === undefined || secretAccessKey === undefined)
    return fail("SETTING_INVALID", `setting ${setting}: ${file} needs the lines aws_access_key_id = … and aws_secret_access_key = …`);
  return { accessKeyID, secretAccessKey, sessionToken: value("aws_session_token") };
}
