# Five functions, each with a role that allows what its routes need, and a schedule for background work.

locals {
  # With which classes of objects each function may do what, and whether it makes the first owner's account.
  functions = {
    oauth   = { get = ["drafts"], put = ["drafts"], delete = [], secret = true }
    mcp     = { get = ["bundles", "catalogs", "policies", "drafts"], put = ["drafts"], delete = [], secret = false }
    admin   = { get = ["*"], put = ["*"], delete = ["*"], secret = true }
    devices = { get = [], put = [], delete = [], secret = false }
    catalog = { get = ["bundles", "catalogs", "closures"], put = [], delete = [], secret = false }
  }

  # function -> read or write -> partitions of the table. The tests on the emulator fail on one too few, and on one too many.
  partitions = jsondecode(file("${path.module}/partitions.json"))

  record_actions = {
    # A transaction needs the permission of each of its parts. A deletion writes a tombstone, which expires: nobody needs DeleteItem.
    read  = ["dynamodb:GetItem", "dynamodb:Query", "dynamodb:ConditionCheckItem"]
    write = ["dynamodb:PutItem", "dynamodb:UpdateItem"]
  }

  # Parameters that the operator makes, and the one function that may read each. Their values are in no variable, state or function's settings.
  operator_secrets = {
    ProviderSecret = { function = "oauth", name = var.oidc_client_secret_parameter }
    MailServer     = { function = "admin", name = var.smtp_url_parameter }
    PaymentSecrets = { function = "admin", name = var.payment_secrets_parameter }
  }

  parameters = "arn:${local.partition}:ssm:${local.region}:${local.account}:parameter"

  public_url = var.public_url != "" ? var.public_url : aws_apigatewayv2_api.service.api_endpoint
}

data "aws_iam_policy_document" "lambda" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["lambda.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "function" {
  for_each           = local.functions
  name               = "${var.name}-${each.key}"
  assume_role_policy = data.aws_iam_policy_document.lambda.json
}

data "aws_iam_policy_document" "function" {
  for_each = local.functions

  statement {
    sid       = "Logs"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["arn:${local.partition}:logs:${local.region}:${local.account}:log-group:/aws/lambda/${var.name}-${each.key}:*"]
  }

  dynamic "statement" {
    for_each = local.partitions[each.key]
    content {
      sid       = title(statement.key)
      actions   = local.record_actions[statement.key]
      resources = [local.table_arn]

      dynamic "condition" {
        for_each = var.limit_partitions ? [statement.value] : []
        content {
          test     = "ForAllValues:StringLike"
          variable = "dynamodb:LeadingKeys"
          values   = condition.value
        }
      }

      # `ForAllValues` holds for a request that names no partition.
      dynamic "condition" {
        for_each = var.limit_partitions ? [1] : []
        content {
          test     = "Null"
          variable = "dynamodb:LeadingKeys"
          values   = ["false"]
        }
      }
    }
  }

  # Tells whether an object is absent. S3 answers 404 for one only to a role that may list the whole bucket, as `admin`, which reads all of it. The others
  # get 403, and then ask for the list of the keys that begin with this key.
  dynamic "statement" {
    for_each = length(each.value.get) > 0 ? [1] : []
    content {
      sid       = "Absence"
      actions   = ["s3:ListBucket"]
      resources = [local.bucket_arn]

      dynamic "condition" {
        for_each = contains(each.value.get, "*") ? [] : [1]
        content {
          test     = "StringLike"
          variable = "s3:prefix"
          values   = [for class in each.value.get : "ns/*/${class}/*"]
        }
      }
    }
  }

  dynamic "statement" {
    # AWS rejects a statement without resources; an emulator accepts it.
    for_each = {
      for right, classes in { GetObject = each.value.get, PutObject = each.value.put, DeleteObject = each.value.delete } :
      right => classes if length(classes) > 0
    }
    content {
      sid       = statement.key
      actions   = ["s3:${statement.key}"]
      resources = [for class in statement.value : "${local.bucket_arn}/ns/*/${class}/*"]
    }
  }

  # Whichever of these functions makes the first owner's account deletes the password.
  dynamic "statement" {
    for_each = each.value.secret ? [1] : []
    content {
      sid       = "AdminPassword"
      actions   = ["ssm:GetParameter", "ssm:DeleteParameter"]
      resources = ["${local.parameters}${local.admin_password}"]
    }
  }

  dynamic "statement" {
    for_each = { for sid, secret in local.operator_secrets : sid => secret.name if secret.function == each.key && secret.name != "" }
    content {
      sid       = statement.key
      actions   = ["ssm:GetParameter"]
      resources = ["${local.parameters}/${trimprefix(statement.value, "/")}"]
    }
  }

  # Only through these services, so that a role cannot use the key by itself.
  dynamic "statement" {
    for_each = local.key[*]
    content {
      sid       = "Key"
      actions   = ["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"]
      resources = [statement.value]

      condition {
        test     = "StringEquals"
        variable = "kms:ViaService"
        values   = [for service in ["dynamodb", "lambda", "s3", "ssm"] : "${service}.${local.region}.amazonaws.com"]
      }
    }
  }

  dynamic "statement" {
    for_each = each.key == "admin" ? local.alarmed : []
    content {
      sid       = "FailedWork"
      actions   = ["sqs:SendMessage"]
      resources = ["arn:${local.partition}:sqs:${local.region}:${local.account}:${var.name}-failed-work"]
    }
  }
}

resource "aws_iam_role_policy" "function" {
  for_each = local.functions
  name     = "routes"
  role     = aws_iam_role.function[each.key].id
  policy   = data.aws_iam_policy_document.function[each.key].json
}

resource "aws_cloudwatch_log_group" "function" {
  for_each          = local.functions
  name              = "/aws/lambda/${var.name}-${each.key}"
  retention_in_days = var.log_days
  kms_key_id        = local.key
}

resource "aws_lambda_function" "function" {
  for_each         = local.functions
  function_name    = "${var.name}-${each.key}"
  role             = aws_iam_role.function[each.key].arn
  runtime          = "provided.al2023"
  handler          = "bootstrap"
  architectures    = [var.architecture]
  filename         = "${var.zips}/${each.key}/bootstrap.zip"
  source_code_hash = filebase64sha256("${var.zips}/${each.key}/bootstrap.zip")
  memory_size      = var.memory[each.key]
  timeout          = var.timeout
  kms_key_arn      = local.key

  # A burst at one function then leaves the rest of the account's concurrency to the others.
  reserved_concurrent_executions = lookup(var.concurrency, each.key, -1)

  environment {
    variables = merge(
      {
        VAULT_BUCKET     = local.bucket
        VAULT_PUBLIC_URL = local.public_url
        VAULT_TABLE      = local.table
      },
      each.value.secret ? {
        VAULT_ADMIN_EMAIL              = var.admin_email
        VAULT_ADMIN_PASSWORD_PARAMETER = local.admin_password
      } : {},
      var.oidc_client_secret_parameter == "" ? {} : {
        VAULT_OIDC_CLIENT_SECRET_PARAMETER = var.oidc_client_secret_parameter
      },
      # The name of the parameter: all functions know that plans are for sale, and one reads the secrets.
      var.payment_secrets_parameter == "" ? {} : {
        VAULT_PAYMENT_SECRETS_PARAMETER = var.payment_secrets_parameter
      },
      var.roles_endpoints == null ? {} : { VAULT_AWS_ENDPOINT = var.roles_endpoints[each.key] },
      var.edge == null ? {} : { VAULT_ORIGIN_DIGESTS = local.origin_digests },
      each.key == "admin" && var.smtp_url_parameter != "" ? {
        VAULT_MAIL_FROM          = var.mail_from
        VAULT_SMTP_URL_PARAMETER = var.smtp_url_parameter
      } : {},
      var.settings,
    )
  }

  # Without this the function creates its own log group, which keeps logs for ever.
  depends_on = [aws_cloudwatch_log_group.function, aws_iam_role_policy.function]
}

# --- background work ----------------------------------------------------------------------------

resource "aws_cloudwatch_event_rule" "work" {
  name                = "${var.name}-work"
  description         = "Collection, expiry and what else the service does without being asked."
  schedule_expression = "rate(5 minutes)"
}

resource "aws_cloudwatch_event_target" "work" {
  rule = aws_cloudwatch_event_rule.work.name
  arn  = aws_lambda_function.function["admin"].arn
}

resource "aws_lambda_permission" "work" {
  statement_id  = "work"
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.function["admin"].function_name
  principal     = "events.amazonaws.com"
  source_arn    = aws_cloudwatch_event_rule.work.arn
}

# A failed run is not retried: the next one, five minutes later, continues where it stopped.
resource "aws_lambda_function_event_invoke_config" "work" {
  function_name                = aws_lambda_function.function["admin"].function_name
  maximum_event_age_in_seconds = 300
  maximum_retry_attempts       = 0

  dynamic "destination_config" {
    for_each = aws_sqs_queue.failed_work[*].arn
    content {
      on_failure {
        destination = destination_config.value
      }
    }
  }

  # AWS checks that the role may send to the queue.
  depends_on = [aws_iam_role_policy.function]
}
