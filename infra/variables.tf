variable "name" {
  description = "Prefix of all resource names; unique per account and region."
  type        = string
  default     = "vault"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,22}[a-z0-9]$", var.name))
    error_message = "The name must have 2 to 24 lower-case letters, digits and hyphens, and begin with a letter."
  }
}

variable "endpoint" {
  description = "Address of an emulator of AWS; empty means AWS."
  type        = string
  default     = ""
}

variable "roles_endpoints" {
  description = "The address at which each function calls an emulator, so that localstack/roles.py enforces its role; null means that all call it at endpoint."
  type        = map(string)
  default     = null

  validation {
    condition     = var.roles_endpoints == null || var.endpoint != ""
    error_message = "The variable roles_endpoints is for an emulator: AWS enforces roles itself."
  }
}

variable "region" {
  description = "The region; null means that of the environment."
  type        = string
  default     = null
}

variable "zips" {
  description = "Folder of the built functions: <function>/bootstrap.zip."
  type        = string
}

variable "architecture" {
  description = "What the functions were built for: arm64 or x86_64."
  type        = string
  default     = "arm64"

  validation {
    condition     = contains(["arm64", "x86_64"], var.architecture)
    error_message = "The architecture must be arm64 or x86_64."
  }
}

variable "public_url" {
  description = "The address that clients use, if your own domain points at the API; empty means the API's own address."
  type        = string
  default     = ""
}

variable "edge" {
  description = "CloudFront and WAF in front of the gateway; null means none. Both certificates are of the host of public_url: certificate in us-east-1, gateway_certificate in the region of the deployment. The limits are requests in five minutes of one address, and of one network (autonomous system)."
  type = object({
    certificate         = string
    gateway_certificate = string
    address_limit       = optional(number, 2000)
    network_limit       = optional(number, 20000)
  })
  default = null

  validation {
    condition     = var.edge == null || (var.endpoint == "" && can(regex("^https://[a-z0-9-]+(\\.[a-z0-9-]+)+/?$", var.public_url)))
    error_message = "With edge, public_url must be https with a host name alone, and endpoint must be empty: an emulator has no CloudFront."
  }

  validation {
    condition     = var.edge == null || can(regex("^arn:[a-z-]+:acm:us-east-1:", var.edge.certificate)) && can(regex("^arn:[a-z-]+:acm:", var.edge.gateway_certificate))
    error_message = "The variable edge needs the ARNs of two ACM certificates, that for CloudFront in us-east-1."
  }

  validation {
    condition     = alltrue([for limit in try([var.edge.address_limit, var.edge.network_limit], []) : limit >= 10])
    error_message = "WAF takes no limit below 10."
  }
}

variable "origin_secrets" {
  description = "The secrets that CloudFront's header may have, the one that it sends first; infra/deploy makes them."
  type        = list(string)
  default     = []
  sensitive   = true
}

variable "limit_partitions" {
  description = "Whether each function reaches only its partitions of the table (partitions.json), and not all of it."
  type        = bool
  default     = true
}

variable "bucket" {
  description = "Name of the bucket; empty means <name>-objects-<account>-<region>."
  type        = string
  default     = ""
}

variable "table" {
  description = "Name of the table; empty means <name>-records."
  type        = string
  default     = ""
}

variable "adopt_table" {
  description = "Whether to use an existing table, for instance one restored from a backup."
  type        = bool
  default     = false
}

variable "admin_email" {
  description = "E-mail address of the first owner and operator; used only while there is none."
  type        = string
}

variable "admin_password" {
  description = "Their password, at least 24 characters; written once to a SecureString parameter, never to state or plan."
  type        = string
  default     = null
  sensitive   = true
  ephemeral   = true
}

variable "first_owner" {
  description = "Whether the parameter with the first owner's password exists; infra/deploy sets it."
  type        = bool
  default     = true
}

variable "oidc_client_secret_parameter" {
  description = "Name of a SecureString parameter with the client secret at the identity provider; empty means none. The other VAULT_OIDC_… variables belong in settings."
  type        = string
  default     = ""

  validation {
    condition     = var.oidc_client_secret_parameter == "" || startswith(var.oidc_client_secret_parameter, "/")
    error_message = "The name of the parameter must begin with a slash, for instance /vault/oidc-client-secret."
  }
}

variable "payment_secrets_parameter" {
  description = "Name of a SecureString parameter that holds VAULT_PAYMENT_SECRETS, for vaults that are for sale; empty means none. The other variables of payment belong in settings."
  type        = string
  default     = ""

  validation {
    condition     = var.payment_secrets_parameter == "" || startswith(var.payment_secrets_parameter, "/")
    error_message = "The name of the parameter must begin with a slash, for instance /vault/payment-secrets."
  }
}

variable "smtp_url_parameter" {
  description = "Name of a SecureString parameter that holds VAULT_SMTP_URL, for notices by mail; empty means no mail."
  type        = string
  default     = ""
}

variable "mail_from" {
  description = "The address that mail comes from."
  type        = string
  default     = ""
}

variable "settings" {
  description = "Further environment variables of all functions, for instance VAULT_TOKEN_TTL or VAULT_LIMIT_ENROL_SLUG. No secrets: they have parameters."
  type        = map(string)
  default     = {}

  validation {
    condition = var.endpoint != "" || alltrue([
      for name in keys(var.settings) : endswith(name, "_PARAMETER") || !can(regex("SECRET|PASSWORD|CREDENTIAL|PRIVATE|SMTP_URL", upper(name)))
    ])
    error_message = "The variable settings must not hold secrets, because all functions and the state would have them: use payment_secrets_parameter, oidc_client_secret_parameter or smtp_url_parameter."
  }
}

variable "concurrency" {
  description = "The most calls that each function answers at a time, by its name, for instance { oauth = 50 }; a function that is not named has no limit of its own. AWS keeps at least 100 of the account's calls unreserved."
  type        = map(number)
  default     = {}

  validation {
    condition     = alltrue([for function, calls in var.concurrency : contains(["oauth", "mcp", "admin", "devices", "catalog"], function) && calls >= 1])
    error_message = "The variable concurrency has the names oauth, mcp, admin, devices and catalog, and numbers from 1."
  }
}

variable "table_throughput" {
  description = "The most read and write units of the table in a second; null means no limit of its own."
  type        = object({ read = number, write = number })
  default     = null
}

variable "kms_key_arn" {
  description = "Your own KMS key for the table, the bucket, the logs, the parameter and the functions' variables; empty means keys of AWS. Its policy must admit CloudWatch Logs (docs/deploy.md)."
  type        = string
  default     = ""
}

variable "alarm_email" {
  description = "Who is told of failed background work, errors and throttles; empty means no alarms."
  type        = string
  default     = ""
}

variable "budget" {
  description = "US dollars a month that the account may cost, and who is told when it costs 80 % of them or will cost more; null means no budget."
  type        = object({ usd = number, email = string })
  default     = null
}

variable "memory" {
  description = "Memory of each function in MiB; its share of the processor grows with it."
  type        = map(number)
  default     = { oauth = 512, mcp = 512, admin = 512, devices = 256, catalog = 256 }
}

variable "timeout" {
  description = "Most seconds that a call may take; a handler gives up after 20, the gateway after 30."
  type        = number
  default     = 25
}

variable "throttle" {
  description = "Requests a second, and their burst, that the gateway lets through for each route."
  type        = object({ rate = number, burst = number })
  default     = { rate = 200, burst = 400 }
}

variable "route_throttles" {
  description = "The same for some routes, by their key in routes.json, for instance \"ANY /oauth/register\"."
  type        = map(object({ rate = number, burst = number }))
  default     = {}
}

variable "log_days" {
  description = "How many days logs are kept."
  type        = number
  default     = 30
}

variable "noncurrent_days" {
  description = "How many days a deleted object can be restored."
  type        = number
  default     = 30
}

variable "protect_data" {
  description = "Whether the table and the bucket are protected against deletion."
  type        = bool
  default     = true
}

variable "tags" {
  description = "Tags of every resource."
  type        = map(string)
  default     = {}
}
