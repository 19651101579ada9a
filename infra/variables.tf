variable "name" {
  description = "What every resource's name begins with: one deployment in an account and region."
  type        = string
  default     = "vault"

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,22}[a-z0-9]$", var.name))
    error_message = "2 to 24 lower-case letters, digits and minus signs, beginning with a letter."
  }
}

variable "endpoint" {
  description = "Address of an emulator of AWS; empty means AWS."
  type        = string
  default     = ""
}

variable "region" {
  description = "The region; null takes it from the environment."
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
    error_message = "arm64 or x86_64."
  }
}

variable "public_url" {
  description = "The address that clients use, where a domain of your own points at the API; empty means the API's own address."
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
  description = "Whether the table is there already, for instance restored from a backup, and is taken over."
  type        = bool
  default     = false
}

variable "admin_email" {
  description = "E-mail address of the first owner and operator; read by the service while there is none."
  type        = string
}

variable "admin_password" {
  description = "Their password, at least 24 characters; written to a SecureString parameter once, kept neither in state nor in plan."
  type        = string
  default     = null
  sensitive   = true
  ephemeral   = true
}

variable "settings" {
  description = "Further variables of all functions, for instance VAULT_TOKEN_TTL or VAULT_LIMIT_ENROL_SLUG."
  type        = map(string)
  default     = {}
}

variable "memory" {
  description = "Memory of each function in MiB; processor time grows with it."
  type        = map(number)
  default     = { oauth = 512, mcp = 512, admin = 512, devices = 256, catalog = 256 }
}

variable "timeout" {
  description = "Seconds that a call may take; a handler gives up after 20, the gateway after 30."
  type        = number
  default     = 25
}

variable "throttle" {
  description = "Calls a second, and their burst, that the gateway lets through for one route."
  type        = object({ rate = number, burst = number })
  default     = { rate = 200, burst = 400 }
}

variable "route_throttles" {
  description = "The same for single routes, by their key in routes.json, for instance \"ANY /oauth/register\"."
  type        = map(object({ rate = number, burst = number }))
  default     = {}
}

variable "log_days" {
  description = "Days that logs are kept."
  type        = number
  default     = 30
}

variable "noncurrent_days" {
  description = "Days that a deleted object can still be brought back."
  type        = number
  default     = 30
}

variable "protect_data" {
  description = "Whether table and bucket refuse to be destroyed while they hold data."
  type        = bool
  default     = true
}

variable "tags" {
  description = "Tags of every resource."
  type        = map(string)
  default     = {}
}
