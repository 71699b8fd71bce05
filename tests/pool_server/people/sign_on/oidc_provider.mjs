// The certified oidc-provider, with one client and accounts that anybody may claim.
const [folder, port, redirect] = process.argv.slice(2);
const { Provider } = await import(`${folder}/lib/index.js`);
const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{
    client_id: "the-pool", client_secret: "s3cret:/with colon", redirect_uris: [redirect],
    grant_types: ["authorization_code", "refresh_token"], response_types: ["code"],
  }],
  claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name"] },
  scopes: ["openid", "offline_access", "email", "profile"],
  issueRefreshToken: async () => true,
  pkce: { required: () => true },
  findAccount: async (_context, id) => ({
    accountId: id,
    claims: async () => ({ sub: id, name: "A. Name", email: `${id}@uni.example`, email_verified: true }),
  }),
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
