# What a deployment stores: one table, one bucket, one secret.

terraform {
  required_version = ">= 1.11" # write-only arguments

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.90, < 6.0"
    }
  }
}

locals {
  emulated = var.endpoint != ""
  at       = local.emulated ? [var.endpoint] : []
}

provider "aws" {
  region = var.region

  # An emulator accepts any key, but needs one.
  access_key                  = local.emulated ? "test" : null
  secret_key                  = local.emulated ? "test" : null
  skip_credentials_validation = local.emulated
  skip_metadata_api_check     = local.emulated ? "true" : null
  skip_requesting_account_id  = local.emulated
  s3_use_path_style           = local.emulated

  dynamic "endpoints" {
    for_each = local.at
    content {
      apigatewayv2 = endpoints.value
      dynamodb     = endpoints.value
      events       = endpoints.value
      iam          = endpoints.value
      lambda       = endpoints.value
      logs         = endpoints.value
      s3           = endpoints.value
      ssm          = endpoints.value
      sts          = endpoints.value
    }
  }

  default_tags {
    tags = merge({ vault = var.name }, var.tags)
  }
}

data "aws_caller_identity" "current" {}
data "aws_region" "current" {}
data "aws_partition" "current" {}

locals {
  account   = data.aws_caller_identity.current.account_id
  region    = data.aws_region.current.name
  partition = data.aws_partition.current.partition
  key       = var.kms_key_arn == "" ? null : var.kms_key_arn
  table     = var.table != "" ? var.table : "${var.name}-records"
  bucket    = var.bucket != "" ? var.bucket : "${var.name}-objects-${local.account}-${local.region}"

  # From the names, so that a plan shows what each role may do before anything exists.
  table_arn  = "arn:${local.partition}:dynamodb:${local.region}:${local.account}:table/${local.table}"
  bucket_arn = "arn:${local.partition}:s3:::${local.bucket}"
}

# --- records ------------------------------------------------------------------------------------

resource "aws_dynamodb_table" "records" {
  name                        = local.table
  billing_mode                = "PAY_PER_REQUEST"
  hash_key                    = "pk"
  range_key                   = "sk"
  deletion_protection_enabled = var.protect_data

  attribute {
    name = "pk"
    type = "S"
  }

  attribute {
    name = "sk"
    type = "S"
  }

  # Only deletes rows: the service checks the time itself, because DynamoDB may delete an expired row days later.
  ttl {
    attribute_name = "ttl"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  dynamic "on_demand_throughput" {
    for_each = var.table_throughput == null ? [] : [var.table_throughput]
    content {
      max_read_request_units  = on_demand_throughput.value.read
      max_write_request_units = on_demand_throughput.value.write
    }
  }

  dynamic "server_side_encryption" {
    for_each = local.key[*]
    content {
      enabled     = true
      kms_key_arn = server_side_encryption.value
    }
  }
}

import {
  for_each = var.adopt_table ? [local.table] : []
  to       = aws_dynamodb_table.records
  id       = each.value
}

# --- objects ------------------------------------------------------------------------------------

resource "aws_s3_bucket" "objects" {
  bucket        = local.bucket
  force_destroy = !var.protect_data
}

resource "aws_s3_bucket_public_access_block" "objects" {
  bucket                  = aws_s3_bucket.objects.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "objects" {
  bucket = aws_s3_bucket.objects.id

  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

resource "aws_s3_bucket_versioning" "objects" {
  bucket = aws_s3_bucket.objects.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "objects" {
  bucket = aws_s3_bucket.objects.id

  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm     = local.key == null ? "AES256" : "aws:kms"
      kms_master_key_id = local.key
    }

    # One call of the key for many objects.
    bucket_key_enabled = local.key == null ? null : true
  }
}

resource "aws_s3_bucket_lifecycle_configuration" "objects" {
  bucket     = aws_s3_bucket.objects.id
  depends_on = [aws_s3_bucket_versioning.objects]

  # An object that the service deleted stays for a while as an older version.
  rule {
    id     = "collected"
    status = "Enabled"

    filter {}

    noncurrent_version_expiration {
      noncurrent_days = var.noncurrent_days
    }

    expiration {
      expired_object_delete_marker = true
    }

    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }
}

data "aws_iam_policy_document" "tls_only" {
  statement {
    sid       = "TlsOnly"
    effect    = "Deny"
    actions   = ["s3:*"]
    resources = [aws_s3_bucket.objects.arn, "${aws_s3_bucket.objects.arn}/*"]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    condition {
      test     = "Bool"
      variable = "aws:SecureTransport"
      values   = ["false"]
    }
  }
}

resource "aws_s3_bucket_policy" "objects" {
  bucket     = aws_s3_bucket.objects.id
  policy     = data.aws_iam_policy_document.tls_only.json
  depends_on = [aws_s3_bucket_public_access_block.objects]
}

# --- the first owner's password -----------------------------------------------------------------

locals {
  admin_password = "/${var.name}/admin-password"
}

# The function that makes the account deletes it. infra/deploy notices, and sets the variable to false.
resource "aws_ssm_parameter" "admin_password" {
  count            = var.first_owner ? 1 : 0
  name             = local.admin_password
  description      = "Password of the first owner; read once, by the function that makes the account."
  type             = "SecureString"
  key_id           = local.key
  value_wo         = var.admin_password == null ? "not given" : var.admin_password # refused by the service; written only with the version
  value_wo_version = 1
}
