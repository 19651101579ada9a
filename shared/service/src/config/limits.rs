//! Rate limits, and the variables that set them. A source is the IPv4 address or IPv6 /64 network
//! of a caller; wider networks have a larger allowance. A grant is one consent to an app.

/// Rate limits; 0 switches a limit off.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Enrolments of unknown keys per slug, source and minute (`VAULT_LIMIT_ENROL_SLUG`). Counted
    /// in the store.
    pub enrol_per_slug: u32,
    /// Enrolments of unknown keys per source and minute (`VAULT_LIMIT_ENROL_SOURCE`). Counted in
    /// the store.
    pub enrol_per_source: u32,
    /// Reads of catalog and `devices/current` per device and minute (`VAULT_LIMIT_CATALOG`).
    /// Counted in memory; 0 if a gateway throttles.
    pub catalog_per_device: u32,
    /// Reads of bundles per device and minute (`VAULT_LIMIT_BUNDLES`). Counted in memory; 0 if a
    /// gateway throttles.
    pub bundles_per_device: u32,
    /// Failed sign-ins per source and 15 minutes (`VAULT_LIMIT_SIGN_IN`). Counted in the store.
    pub sign_in_failures: u32,
    /// Failed sign-ins per account and hour; above it, browsers that have not signed in before have
    /// a few tries per network (`VAULT_LIMIT_SIGN_IN_ACCOUNT`). Counted in the store.
    pub sign_in_per_account: u32,
    /// Client registrations per source and hour (`VAULT_LIMIT_REGISTER`). Counted in the store.
    pub register_per_source: u32,
    /// Client registrations per source that were never used (`VAULT_LIMIT_REGISTER_UNUSED`).
    /// Counted in the store.
    pub unused_per_source: u32,
    /// Failed token requests per client, source and minute (`VAULT_LIMIT_TOKEN`). Counted in the
    /// store.
    pub token_failures: u32,
    /// Tokens issued per grant and minute (`VAULT_LIMIT_REFRESH`). Counted in the store.
    pub tokens_per_grant: u32,
    /// Requests without a valid signature at `/hooks/payment` per source and minute
    /// (`VAULT_LIMIT_PAYMENT`). Counted in the store.
    pub payment_failures: u32,
    /// Requests at `/mcp` and `/admin` per grant and minute (`VAULT_LIMIT_GRANT`). Counted in
    /// memory.
    pub requests_per_grant: u32,
    /// Requests at `/mcp`, `/admin` and `/console` per hosted namespace and minute
    /// (`VAULT_LIMIT_NAMESPACE`). Counted in memory.
    pub requests_per_namespace: u32,
    /// Reads of admitted machines per hosted namespace and minute
    /// (`VAULT_LIMIT_NAMESPACE_READS`). Counted in memory.
    pub reads_per_namespace: u32,
    /// Requests that change something per hosted namespace and minute
    /// (`VAULT_LIMIT_NAMESPACE_WRITES`). Counted in the store.
    pub writes_per_namespace: u32,
    /// Rows of the audit log per hosted namespace and hour (`VAULT_LIMIT_NAMESPACE_LOG`). Counted
    /// in the store.
    pub log_rows_per_namespace: u32,
    /// Amount that the gate, the security scanner for skills, scans per hosted namespace and hour,
    /// in GiB (`VAULT_LIMIT_NAMESPACE_GATE`). Counted in memory.
    pub gate_gib_per_namespace: u32,
    /// Parts of exports per hosted namespace and hour (`VAULT_LIMIT_NAMESPACE_EXPORTS`). Counted in
    /// memory.
    pub exports_per_namespace: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            enrol_per_slug: 120,
            enrol_per_source: 600,
            catalog_per_device: 120,
            bundles_per_device: 30_000,
            sign_in_failures: 30,
            sign_in_per_account: 20,
            register_per_source: 200,
            unused_per_source: 50,
            token_failures: 60,
            tokens_per_grant: 10,
            payment_failures: 20,
            requests_per_grant: 600,
            requests_per_namespace: 3000,
            reads_per_namespace: 120_000,
            writes_per_namespace: 600,
            log_rows_per_namespace: 20_000,
            gate_gib_per_namespace: 256,
            exports_per_namespace: 600,
        }
    }
}

impl Limits {
    /// Returns each limit with the variable that sets it.
    pub fn by_variable(&mut self) -> [(&'static str, &mut u32); 18] {
        [
            ("VAULT_LIMIT_ENROL_SLUG", &mut self.enrol_per_slug),
            ("VAULT_LIMIT_ENROL_SOURCE", &mut self.enrol_per_source),
            ("VAULT_LIMIT_CATALOG", &mut self.catalog_per_device),
            ("VAULT_LIMIT_BUNDLES", &mut self.bundles_per_device),
            ("VAULT_LIMIT_SIGN_IN", &mut self.sign_in_failures),
            ("VAULT_LIMIT_SIGN_IN_ACCOUNT", &mut self.sign_in_per_account),
            ("VAULT_LIMIT_REGISTER", &mut self.register_per_source),
            ("VAULT_LIMIT_REGISTER_UNUSED", &mut self.unused_per_source),
            ("VAULT_LIMIT_TOKEN", &mut self.token_failures),
            ("VAULT_LIMIT_REFRESH", &mut self.tokens_per_grant),
            ("VAULT_LIMIT_PAYMENT", &mut self.payment_failures),
            ("VAULT_LIMIT_GRANT", &mut self.requests_per_grant),
            ("VAULT_LIMIT_NAMESPACE", &mut self.requests_per_namespace),
            ("VAULT_LIMIT_NAMESPACE_READS", &mut self.reads_per_namespace),
            (
                "VAULT_LIMIT_NAMESPACE_WRITES",
                &mut self.writes_per_namespace,
            ),
            (
                "VAULT_LIMIT_NAMESPACE_LOG",
                &mut self.log_rows_per_namespace,
            ),
            (
                "VAULT_LIMIT_NAMESPACE_GATE",
                &mut self.gate_gib_per_namespace,
            ),
            (
                "VAULT_LIMIT_NAMESPACE_EXPORTS",
                &mut self.exports_per_namespace,
            ),
        ]
    }

    /// Returns limits that are all off, for benchmarks and for tests of other things.
    pub const fn disabled() -> Self {
        Self {
            enrol_per_slug: 0,
            enrol_per_source: 0,
            catalog_per_device: 0,
            bundles_per_device: 0,
            sign_in_failures: 0,
            sign_in_per_account: 0,
            register_per_source: 0,
            unused_per_source: 0,
            token_failures: 0,
            tokens_per_grant: 0,
            payment_failures: 0,
            requests_per_grant: 0,
            requests_per_namespace: 0,
            reads_per_namespace: 0,
            writes_per_namespace: 0,
            log_rows_per_namespace: 0,
            gate_gib_per_namespace: 0,
            exports_per_namespace: 0,
        }
    }
}
