// An OpenID Connect provider for tests: npm `oidc-provider` with accounts in memory, on the loopback address.
//
//   MODULES=FOLDER node localstack/provider.mjs PORT CLIENT_SECRET
//
// MODULES is the folder with `node_modules/oidc-provider`. Any e-mail address signs in, with any password: the provider has verified it. An
// address that begins with `unverified` is not verified, and the same text names the same person. The client is `vault`; it may come back to
// any address on this machine. Prints the issuer once it listens. SIGTERM ends it.
import { createRequire } from "node:module";
import { generateKeyPairSync, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [port, secret] = process.argv.slice(2);
if (!process.env.MODULES || !/^\d+$/.test(port ?? "") || !secret) {
  console.error("usage: MODULES=FOLDER node provider.mjs PORT CLIENT_SECRET");
  process.exit(2);
}
const require = createRequire(`${process.env.MODULES}/`);
const { default: Provider } = await import(pathToFileURL(require.resolve("oidc-provider")));

const callback = "/oauth/oidc/callback";
const isLocal = (host) => host === "localhost" || host.endsWith(".localhost") || host === "127.0.0.1" || host === "[::1]";

function key(type, options, algorithm) {
  const { privateKey } = generateKeyPairSync(type, options);
  return { ...privateKey.export({ format: "jwk" }), use: "sig", alg: algorithm, kid: algorithm };
}

const server = createServer();
await new Promise((listening, failed) => {
  server.once("error", failed);
  server.listen(Number(port), "127.0.0.1", listening);
});
const issuer = `http://127.0.0.1:${server.address().port}`;

const provider = new Provider(issuer, {
  clients: [
    {
      client_id: "vault",
      client_secret: secret,
      redirect_uris: [`http://localhost${callback}`],
      application_type: "native",
      response_types: ["code"],
      grant_types: ["authorization_code"],
    },
  ],
  jwks: { keys: [key("rsa", { modulusLength: 2048 }, "RS256"), key("ec", { namedCurve: "P-256" }, "ES256")] },
  cookies: { keys: [randomBytes(32).toString("hex")] },
  claims: { openid: ["sub"], email: ["email", "email_verified"] },
  // Most providers name the address in the ID token; by default this one names it at its userinfo endpoint alone.
  conformIdTokenClaims: process.env.USERINFO === "yes",
  pkce: { required: () => true },
  ttl: { AccessToken: 600, AuthorizationCode: 60, Grant: 3600, IdToken: 600, Interaction: 600, Session: 3600 },
  findAccount: (_, id) => ({
    accountId: id,
    claims: () => ({ sub: id, email: id, email_verified: !id.startsWith("unverified") }),
  }),
});
// The address of an emulated service is known only once it is deployed.
provider.Client.prototype.redirectUriAllowed = (text) => {
  const url = URL.parse(text);
  return url !== null && url.protocol === "http:" && isLocal(url.hostname) && url.pathname.endsWith(callback);
};
provider.on("server_error", (_, error) => console.error(error));

server.on("request", provider.callback());
console.log(issuer);
for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => process.exit(0));
