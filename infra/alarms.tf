# What tells the operator that something is wrong: alarms by mail, if the variable `alarm_email` is set, and a budget, if `budget` is.

locals {
  alarmed = var.alarm_email == "" ? [] : [var.alarm_email]

  # Alarms over the sum of several metrics. Each is true if the sum of five minutes is more than none.
  sums = {
    errors = {
      description = "A function failed, or was stopped."
      metrics     = { for function in keys(local.functions) : function => { space = "AWS/Lambda", metric = "Errors", dimensions = { FunctionName = "${var.name}-${function}" } } }
    }
    throttles = {
      description = "Calls of a function were refused: its reserved concurrency, or that of the account, is used up."
      metrics     = { for function in keys(local.functions) : function => { space = "AWS/Lambda", metric = "Throttles", dimensions = { FunctionName = "${var.name}-${function}" } } }
    }
    table = {
      description = "The table refused reads or writes: its throughput is used up."
      metrics = { for metric in ["ReadThrottleEvents", "WriteThrottleEvents"] :
      lower(metric) => { space = "AWS/DynamoDB", metric = metric, dimensions = { TableName = local.table } } }
    }
    gateway = {
      description = "The gateway answered with an error of the service."
      metrics     = { all = { space = "AWS/ApiGateway", metric = "5xx", dimensions = { ApiId = aws_apigatewayv2_api.service.id } } }
    }
  }
}

# --- failed background work ---------------------------------------------------------------------

# A run that failed or never started leaves its event here. The next run continues its work, so nobody has to send it again.
resource "aws_sqs_queue" "failed_work" {
  count                     = length(local.alarmed)
  name                      = "${var.name}-failed-work"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true
}

resource "aws_cloudwatch_metric_alarm" "failed_work" {
  count               = length(local.alarmed)
  alarm_name          = "${var.name}-failed-work"
  alarm_description   = "Background work failed; its events are in the queue ${aws_sqs_queue.failed_work[0].name}. Delete them when you know why."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateNumberOfMessagesVisible"
  dimensions          = { QueueName = aws_sqs_queue.failed_work[0].name }
  statistic           = "Maximum"
  period              = 300
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms[0].arn]
}

# The failure that makes no event: the schedule does not call the function any more.
resource "aws_cloudwatch_metric_alarm" "missing_work" {
  count               = length(local.alarmed)
  alarm_name          = "${var.name}-missing-work"
  alarm_description   = "Background work was not started for half an hour."
  namespace           = "AWS/Events"
  metric_name         = "Invocations"
  dimensions          = { RuleName = aws_cloudwatch_event_rule.work.name }
  statistic           = "Sum"
  period              = 1800
  evaluation_periods  = 1
  comparison_operator = "LessThanThreshold"
  threshold           = 1
  treat_missing_data  = "breaching"
  alarm_actions       = [aws_sns_topic.alarms[0].arn]
}

# A run that skipped a part of its work makes no event either, but a line of the log.
resource "aws_cloudwatch_log_metric_filter" "incomplete_work" {
  count          = length(local.alarmed)
  name           = "${var.name}-incomplete-work"
  log_group_name = aws_cloudwatch_log_group.function["admin"].name
  pattern        = "{ $.message = \"background work failed\" }"

  metric_transformation {
    namespace = var.name
    name      = "IncompleteWork"
    value     = "1"
  }
}

resource "aws_cloudwatch_metric_alarm" "incomplete_work" {
  count               = length(local.alarmed)
  alarm_name          = "${var.name}-incomplete-work"
  alarm_description   = "Background work failed or skipped a part; the log of the function admin says which (\"background work failed\")."
  namespace           = var.name
  metric_name         = aws_cloudwatch_log_metric_filter.incomplete_work[0].metric_transformation[0].name
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms[0].arn]
}

# A namespace gets more garbage than the runs collect. No run has failed, so this has an alarm of its own: one of its tenants causes it, and must
# not be able to hold the others on. The line comes once for every three days of the delay.
resource "aws_cloudwatch_log_metric_filter" "late_collection" {
  count          = length(local.alarmed)
  name           = "${var.name}-late-collection"
  log_group_name = aws_cloudwatch_log_group.function["admin"].name
  pattern        = "{ $.message = \"garbage collection is late\" }"

  metric_transformation {
    namespace = var.name
    name      = "LateCollection"
    value     = "1"
  }
}

resource "aws_cloudwatch_metric_alarm" "late_collection" {
  count               = length(local.alarmed)
  alarm_name          = "${var.name}-late-collection"
  alarm_description   = "The garbage collection of a namespace has taken three more days and goes on; the log of the function admin says which (\"garbage collection is late\")."
  namespace           = var.name
  metric_name         = aws_cloudwatch_log_metric_filter.late_collection[0].metric_transformation[0].name
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms[0].arn]
}

# --- refused and failed requests ----------------------------------------------------------------

resource "aws_cloudwatch_metric_alarm" "sum" {
  for_each            = length(local.alarmed) > 0 ? local.sums : {}
  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.description
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = [aws_sns_topic.alarms[0].arn]

  metric_query {
    id          = "sum"
    expression  = "SUM(METRICS())"
    label       = each.key
    return_data = true
  }

  dynamic "metric_query" {
    for_each = each.value.metrics
    content {
      id = metric_query.key
      metric {
        namespace   = metric_query.value.space
        metric_name = metric_query.value.metric
        dimensions  = metric_query.value.dimensions
        stat        = "Sum"
        period      = 300
      }
    }
  }
}

# --- who is told --------------------------------------------------------------------------------

resource "aws_sns_topic" "alarms" {
  count = length(local.alarmed)
  name  = "${var.name}-alarms"
}

# AWS asks the address for its consent by mail.
resource "aws_sns_topic_subscription" "alarms" {
  count     = length(local.alarmed)
  topic_arn = aws_sns_topic.alarms[0].arn
  protocol  = "email"
  endpoint  = local.alarmed[0]
}

# Of the whole account: a budget of tagged resources counts nothing until the tag is activated for billing.
resource "aws_budgets_budget" "month" {
  count        = var.budget == null ? 0 : 1
  name         = var.name
  budget_type  = "COST"
  limit_amount = tostring(var.budget.usd)
  limit_unit   = "USD"
  time_unit    = "MONTHLY"

  dynamic "notification" {
    for_each = { ACTUAL = 80, FORECASTED = 100 }
    content {
      notification_type          = notification.key
      comparison_operator        = "GREATER_THAN"
      threshold                  = notification.value
      threshold_type             = "PERCENTAGE"
      subscriber_email_addresses = [var.budget.email]
    }
  }
}
