# One HTTP API with the routes of the service's route table. All other paths go to `devices`, which answers 401 or 404.

locals {
  keys = jsondecode(file("${path.module}/routes.json"))

  # route key -> function
  routes = merge([for function, keys in local.keys : { for key in keys : key => function }]...)
}

resource "aws_apigatewayv2_api" "service" {
  name          = var.name
  protocol_type = "HTTP"

  # Behind CloudFront this address would be a way past it.
  disable_execute_api_endpoint = var.edge == null ? null : true
}

# Only `$default`: a named stage would be a prefix of the path that devices sign.
resource "aws_apigatewayv2_stage" "default" {
  api_id      = aws_apigatewayv2_api.service.id
  name        = "$default"
  auto_deploy = true

  default_route_settings {
    throttling_rate_limit  = var.throttle.rate
    throttling_burst_limit = var.throttle.burst
  }

  dynamic "route_settings" {
    for_each = var.route_throttles
    content {
      route_key              = route_settings.key
      throttling_rate_limit  = route_settings.value.rate
      throttling_burst_limit = route_settings.value.burst
    }
  }

  # The route's key, never its path: an invitation is a secret in the path. An emulator ignores these settings.
  dynamic "access_log_settings" {
    for_each = local.emulated ? [] : [aws_cloudwatch_log_group.api.arn]
    content {
      destination_arn = access_log_settings.value
      format = jsonencode({
        at          = "$context.requestTimeEpoch"
        request_id  = "$context.requestId"
        source      = "$context.identity.sourceIp"
        method      = "$context.httpMethod"
        route       = "$context.routeKey"
        status      = "$context.status"
        bytes       = "$context.responseLength"
        ms          = "$context.responseLatency"
        integration = "$context.integrationStatus"
        error       = "$context.error.responseType"
      })
    }
  }

  depends_on = [aws_apigatewayv2_route.route]
}

resource "aws_cloudwatch_log_group" "api" {
  name              = "/aws/apigateway/${var.name}"
  retention_in_days = var.log_days
  kms_key_id        = local.key
}

resource "aws_apigatewayv2_integration" "function" {
  for_each               = local.functions
  api_id                 = aws_apigatewayv2_api.service.id
  integration_type       = "AWS_PROXY"
  integration_uri        = aws_lambda_function.function[each.key].invoke_arn
  payload_format_version = "2.0"
  timeout_milliseconds   = 30000
}

resource "aws_apigatewayv2_route" "route" {
  for_each  = local.routes
  api_id    = aws_apigatewayv2_api.service.id
  route_key = each.key
  target    = "integrations/${aws_apigatewayv2_integration.function[each.value].id}"
}

resource "aws_lambda_permission" "api" {
  for_each      = local.functions
  statement_id  = "api"
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.function[each.key].function_name
  principal     = "apigateway.amazonaws.com"
  source_arn    = "${aws_apigatewayv2_api.service.execution_arn}/*"
}
