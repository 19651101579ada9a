# Five functions, each with a role that allows what its routes need, and a schedule for background work.

locals {
  # What each function may do with the table and with which classes of objects.
  #   records: read, or write (which includes read)
  #   visits: may write the records of devices' last visits, and no others
  #   get, put, delete: classes of objects
  functions = {
    oauth   = { records = "write", visits = false, get = [], put = [], delete = [], secret = true }
    mcp     = { records = "write", visits = false, get = ["bundles", "catalogs", "policies", "drafts"], put = ["drafts"], delete = [], secret = false }
    admin   = { records = "write", visits = false, get = ["*"], put = ["*"], delete = ["*"], secret = true }
    devices = { records = "write", visits = false, get = [], put = [], delete = [], secret = false }
    catalog = { records = "read", visits = true, get = ["bundles", "catalogs", "closures"], put = [], delete = [], secret = false }
  }

  record_actions = {
    # A transaction needs the permission of each of its parts. A deletion writes a tombstone, which expires: nobody needs DeleteItem.
    read = ["dynamodb:GetItem", "dynamodb:Query"]
    write = [
      "dynamodb:GetItem", "dynamodb:Query",
      "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:ConditionCheckItem",
    ]
  }

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
    resources = ["${aws_cloudwatch_log_group.function[each.key].arn}:*"]
  }

  statement {
    sid       = "Records"
    actions   = local.record_actions[each.value.records]
    resources = [aws_dynamodb_table.records.arn]
  }

  dynamic "statement" {
    for_each = each.value.visits ? [1] : []
    content {
      sid       = "Visits"
      actions   = ["dynamodb:PutItem", "dynamodb:UpdateItem"]
      resources = [aws_dynamodb_table.records.arn]

      condition {
        test     = "ForAllValues:StringLike"
        variable = "dynamodb:LeadingKeys"
        values   = ["seen/*"]
      }
    }
  }

  # Without it an absent object reads as forbidden (403) instead of absent (404).
  dynamic "statement" {
    for_each = length(each.value.get) > 0 ? [1] : []
    content {
      sid       = "Absence"
      actions   = ["s3:ListBucket"]
      resources = [aws_s3_bucket.objects.arn]
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
      resources = [for class in statement.value : "${aws_s3_bucket.objects.arn}/ns/*/${class}/*"]
    }
  }

  dynamic "statement" {
    for_each = each.value.secret ? [1] : []
    content {
      sid       = "AdminPassword"
      actions   = ["ssm:GetParameter"]
      resources = [aws_ssm_parameter.admin_password.arn]
    }
  }

  dynamic "statement" {
    for_each = each.key == "oauth" && var.oidc_client_secret_parameter != "" ? [1] : []
    content {
      sid     = "ProviderSecret"
      actions = ["ssm:GetParameter"]
      # The operator makes the parameter, so its ARN is that of the other one with another name.
      resources = ["${trimsuffix(aws_ssm_parameter.admin_password.arn, aws_ssm_parameter.admin_password.name)}${var.oidc_client_secret_parameter}"]
    }
  }

  dynamic "statement" {
    for_each = each.key == "admin" && var.smtp_url_parameter != "" ? [1] : []
    content {
      sid       = "MailServer"
      actions   = ["ssm:GetParameter"]
      resources = ["arn:aws:ssm:*:*:parameter/${trimprefix(var.smtp_url_parameter, "/")}"]
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

  environment {
    variables = merge(
      {
        VAULT_BUCKET     = aws_s3_bucket.objects.id
        VAULT_PUBLIC_URL = local.public_url
        VAULT_TABLE      = aws_dynamodb_table.records.name
      },
      each.value.secret ? {
        VAULT_ADMIN_EMAIL              = var.admin_email
        VAULT_ADMIN_PASSWORD_PARAMETER = aws_ssm_parameter.admin_password.name
      } : {},
      var.oidc_client_secret_parameter == "" ? {} : {
        VAULT_OIDC_CLIENT_SECRET_PARAMETER = var.oidc_client_secret_parameter
      },
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
}
