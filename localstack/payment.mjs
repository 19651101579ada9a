// A payment provider for tests, on the loopback address: a checkout page and subscriptions in memory. It takes no money.
//
//   MODULES=FOLDER PAYMENT_SECRET=SECRET node localstack/payment.mjs PORT SERVICE
//
// MODULES is the folder with `node_modules/stripe`: the official library signs every event with the secret, one of the service's
// VAULT_PAYMENT_SECRETS. SERVICE is the public address of the service; events go to its /hooks/payment.
//
//   /checkout/PLAN   the checkout page of a plan, for VAULT_PLANS; `pay` makes a subscription by the payment link plink_PLAN, for the price
//                    price_PLAN, in euros. All events are of the test mode: VAULT_PAYMENT_MODE=test
//   /subscriptions   all subscriptions, with a button for each state that one can change to
//
// Each answer shows what the service said to each event. Prints its address once it listens. SIGTERM ends it.
import { createRequire } from "node:module";
import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";

const [port, service] = process.argv.slice(2);
const secret = process.env.PAYMENT_SECRET;
if (!process.env.MODULES || !secret || !/^\d+$/.test(port ?? "") || !URL.canParse(service ?? "")) {
  console.error("usage: MODULES=FOLDER PAYMENT_SECRET=SECRET node payment.mjs PORT SERVICE");
  process.exit(2);
}
const require = createRequire(`${process.env.MODULES}/`);
const { default: Stripe } = await import(pathToFileURL(require.resolve("stripe")));

const states = ["active", "past_due", "unpaid", "canceled"];
const subscriptions = new Map();
const id = (kind) => `${kind}_${randomBytes(12).toString("hex")}`;

// Of two events of one second the service takes the stricter, so each change gets a second of its own.
let newest = 0;
function nextSecond() {
  newest = Math.max(newest + 1, Math.floor(Date.now() / 1000));
  return newest;
}

// Sends a signed event; what the service answered, as one line.
async function send(type, object, created) {
  const event = { id: id("evt"), object: "event", api_version: Stripe.API_VERSION, created, livemode: false, type, data: { object } };
  const payload = JSON.stringify(event);
  const signature = Stripe.webhooks.generateTestHeaderString({ payload, secret });
  try {
    const answer = await fetch(`${service.replace(/\/$/, "")}/hooks/payment`, {
      method: "POST",
      headers: { "content-type": "application/json", "stripe-signature": signature },
      body: payload,
      signal: AbortSignal.timeout(20_000),
    });
    return `${type}: ${answer.status} ${(await answer.text()).slice(0, 500)}`;
  } catch (error) {
    return `${type}: no answer (${error.cause?.message ?? error.message})`;
  }
}

const asSubscription = ({ name, customer, status, plan }) => ({
  id: name, object: "subscription", customer, status, currency: "eur",
  items: { object: "list", data: [{ id: id("si"), object: "subscription_item", price: { id: `price_${plan}`, object: "price" } }] },
});
const asInvoice = ({ name, customer }) => ({
  id: id("in"), object: "invoice", customer, parent: { type: "subscription_details", subscription_details: { subscription: name } },
});

async function pay(plan, reference, email) {
  const subscription = { name: id("sub"), customer: id("cus"), plan, email, status: "active" };
  subscriptions.set(subscription.name, subscription);
  const session = {
    id: id("cs"), object: "checkout.session", mode: "subscription", status: "complete", payment_status: "paid",
    client_reference_id: reference, customer: subscription.customer, subscription: subscription.name,
    payment_link: `plink_${plan}`, currency: "eur",
  };
  const created = nextSecond();
  return [
    await send("checkout.session.completed", session, created),
    await send("customer.subscription.created", asSubscription(subscription), created),
    await send("invoice.paid", asInvoice(subscription), created),
  ];
}

async function change(subscription, status) {
  subscription.status = status;
  const created = nextSecond();
  const sent = [await send(`customer.subscription.${status === "canceled" ? "deleted" : "updated"}`, asSubscription(subscription), created)];
  if (status !== "canceled") sent.push(await send(status === "active" ? "invoice.paid" : "invoice.payment_failed", asInvoice(subscription), created));
  return sent;
}

const escaped = (text) => String(text).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
const page = (title, body) => `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${escaped(title)}</title><style>body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}code{overflow-wrap:anywhere}</style>
<h1>${escaped(title)}</h1>${body}`;
const listed = (sent) => `<ul>${sent.map((line) => `<li><code>${escaped(line)}</code>`).join("")}</ul>`;
const hidden = (name, value) => `<input type="hidden" name="${name}" value="${escaped(value)}">`;
const button = (value) => `<button name="do" value="${value}">${value}</button> `;

function checkoutPage(plan, reference, email) {
  return page(`Test checkout: plan ${plan}`, `<p>For ${escaped(email)}. No money is taken.</p>
<form method="post">${hidden("reference", reference)}${hidden("email", email)}${button("pay")}</form>`);
}

function subscriptionsPage() {
  const rows = [...subscriptions.values()].reverse().map(({ name, plan, email, status }) => `<form method="post"><p><code>${name}</code>,
plan ${escaped(plan)}, ${escaped(email)}: ${status}<br>${hidden("subscription", name)}${states.map(button).join("")}</form>`);
  return page("Test subscriptions", rows.join("") || "<p>There is no subscription yet.");
}

async function answer(request) {
  const url = new URL(request.url, "http://127.0.0.1");
  const posted = request.method === "POST";
  let text = "";
  for await (const part of request) text += part;
  const form = new URLSearchParams(text);
  const plan = /^\/checkout\/([a-z0-9-]+)$/.exec(url.pathname)?.[1];
  if (plan && posted) {
    const sent = await pay(plan, form.get("reference"), form.get("email"));
    return [200, page("Paid", `${listed(sent)}<p><a href="${escaped(service)}/">Back to the service</a>, or <a href="/subscriptions">all subscriptions</a>`)];
  }
  if (plan) {
    const reference = url.searchParams.get("client_reference_id");
    if (!reference) return [400, page("No sign-up named", "<p>Open the link on the front page of the service: it names the sign-up.")];
    return [200, checkoutPage(plan, reference, url.searchParams.get("prefilled_email") ?? "")];
  }
  if (url.pathname === "/subscriptions" && posted) {
    const [subscription, status] = [subscriptions.get(form.get("subscription")), form.get("do")];
    if (!subscription || !states.includes(status)) return [400, page("Unknown subscription or state", "")];
    const sent = await change(subscription, status);
    return [200, page(`Subscription ${status}`, `${listed(sent)}<p><a href="/subscriptions">All subscriptions</a>`)];
  }
  if (url.pathname === "/subscriptions") return [200, subscriptionsPage()];
  return [404, page("Not found", '<p><a href="/subscriptions">All subscriptions</a>')];
}

const server = createServer((request, response) => {
  answer(request)
    .catch((error) => [500, page("Failed", escaped(error.stack))])
    .then(([status, body]) => response.writeHead(status, { "content-type": "text/html; charset=utf-8" }).end(body));
});
server.listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
for (const name of ["SIGTERM", "SIGINT"]) process.on(name, () => process.exit(0));
