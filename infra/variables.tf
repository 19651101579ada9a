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

variable "oidc_client_secret_parameter" {
  description = "Name of a SecureString parameter with the client secret at the identity provider; empty means none. The other VAULT_OIDC_… variables belong in settings."
  type        = string
  default     = ""

  validation {
    condition     = var.oidc_client_secret_parameter == "" || startswith(var.oidc_client_secret_parameter, "/")
    error_message = "The name of the parameter must begin with a slash, for instance /vault/oidc-client-secret."
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
  description = "Further environment variables of all functions, for instance VAULT_TOKEN_TTL or VAULT_LIMIT_ENROL_SLUG."
  type        = map(string)
  default     = {}
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
