# CloudFront and WAF in front of the gateway, if the variable `edge` is set. An emulator has neither.
#
# The public name points at CloudFront. Method, path and `Host` reach the gateway unchanged, because devices sign the path and the
# service checks the host; for that, the gateway has a domain name of the same name, to which only CloudFront connects. CloudFront adds a secret
# header, which the functions check, and the gateway's own address is switched off.

# Certificates and web ACLs of CloudFront are in this region, wherever the service is.
provider "aws" {
  alias  = "global"
  region = "us-east-1"

  access_key                  = local.emulated ? "test" : null
  secret_key                  = local.emulated ? "test" : null
  skip_credentials_validation = local.emulated
  skip_metadata_api_check     = local.emulated ? "true" : null
  skip_requesting_account_id  = local.emulated

  default_tags {
    tags = merge({ vault = var.name }, var.tags)
  }
}

locals {
  edge = var.edge == null ? [] : [var.edge]
  host = trimsuffix(trimprefix(var.public_url, "https://"), "/")

  # The functions get digests: whoever may read their configuration cannot imitate CloudFront.
  origin_digests = join(",", [for secret in nonsensitive(var.origin_secrets) : sha256(secret)])

  # Managed by AWS, with the same id in every account.
  caching_disabled = "4135ea2d-6df8-44a3-9df3-4b5a84be39ad"

  # CloudFront keeps these answers for ten seconds, whatever the cache policy and the headers say, unless it is told otherwise.
  cached_errors = [400, 403, 404, 405, 414, 416, 500, 501, 502, 503, 504]

  too_many = {
    Block = {
      CustomResponse = {
        ResponseCode          = 429
        CustomResponseBodyKey = "rate_limited"
        ResponseHeaders       = [{ Name = "Retry-After", Value = "60" }]
      }
    }
  }
}

# --- the gateway's domain name ------------------------------------------------------------------

resource "aws_apigatewayv2_domain_name" "edge" {
  count       = length(local.edge)
  domain_name = local.host

  domain_name_configuration {
    certificate_arn = var.edge.gateway_certificate
    endpoint_type   = "REGIONAL"
    security_policy = "TLS_1_2"
  }
}

# Without a path: it would be a prefix of the path that devices sign.
resource "aws_apigatewayv2_api_mapping" "edge" {
  count       = length(local.edge)
  api_id      = aws_apigatewayv2_api.service.id
  domain_name = aws_apigatewayv2_domain_name.edge[0].id
  stage       = aws_apigatewayv2_stage.default.id
}

# --- WAF ----------------------------------------------------------------------------------------

resource "aws_wafv2_web_acl" "edge" {
  count       = length(local.edge)
  provider    = aws.global
  name        = var.name
  description = "Requests of one address and of one network, in five minutes."
  scope       = "CLOUDFRONT"

  default_action {
    allow {}
  }

  custom_response_body {
    key          = "rate_limited"
    content_type = "APPLICATION_JSON"
    content = jsonencode({
      type   = "about:blank"
      title  = "Too Many Requests"
      status = 429
      code   = "rate_limited"
      detail = "Too many requests; wait as long as Retry-After says."
    })
  }

  # As JSON, because the provider's blocks have no aggregation by autonomous system. An address is a whole IPv4 or IPv6 address. The system is
  # the only network that WAF counts: without it, one who has a block of addresses would take a new one for each request.
  rule_json = jsonencode([
    {
      Name     = "address"
      Priority = 0
      Statement = {
        RateBasedStatement = {
          AggregateKeyType    = "IP"
          EvaluationWindowSec = 300
          Limit               = var.edge.address_limit
        }
      }
      Action           = local.too_many
      VisibilityConfig = { CloudWatchMetricsEnabled = true, MetricName = "${var.name}-address", SampledRequestsEnabled = false }
    },
    {
      Name     = "network"
      Priority = 1
      Statement = {
        RateBasedStatement = {
          AggregateKeyType    = "CUSTOM_KEYS"
          CustomKeys          = [{ ASN = {} }]
          EvaluationWindowSec = 300
          Limit               = var.edge.network_limit
        }
      }
      Action           = local.too_many
      VisibilityConfig = { CloudWatchMetricsEnabled = true, MetricName = "${var.name}-network", SampledRequestsEnabled = false }
    },
  ])

  # Samples would show paths, and the path of an invitation is a secret.
  visibility_config {
    cloudwatch_metrics_enabled = true
    metric_name                = var.name
    sampled_requests_enabled   = false
  }
}

# --- CloudFront ---------------------------------------------------------------------------------

# All that the viewer sent, and its address. CloudFront replaces a header of this name that the viewer sends.
resource "aws_cloudfront_origin_request_policy" "edge" {
  count = length(local.edge)
  name  = var.name

  headers_config {
    header_behavior = "allViewerAndWhitelistCloudFront"
    headers {
      items = ["CloudFront-Viewer-Address"]
    }
  }

  cookies_config {
    cookie_behavior = "all"
  }

  query_strings_config {
    query_string_behavior = "all"
  }
}

resource "aws_cloudfront_distribution" "edge" {
  count           = length(local.edge)
  comment         = var.name
  enabled         = true
  is_ipv6_enabled = true
  http_version    = "http2and3"
  price_class     = "PriceClass_All"
  aliases         = [local.host]
  web_acl_id      = aws_wafv2_web_acl.edge[0].arn

  origin {
    origin_id   = "gateway"
    domain_name = aws_apigatewayv2_domain_name.edge[0].domain_name_configuration[0].target_domain_name

    # It replaces a header of this name that the viewer sends.
    custom_header {
      name  = "X-Vault-Origin"
      value = var.origin_secrets[0]
    }

    custom_origin_config {
      http_port                = 80
      https_port               = 443
      origin_protocol_policy   = "https-only"
      origin_ssl_protocols     = ["TLSv1.2"]
      origin_read_timeout      = 30
      origin_keepalive_timeout = 60
    }
  }

  # Every answer depends on who asks, so nothing is kept. A redirect from http would teach clients to send tokens in the clear first.
  default_cache_behavior {
    target_origin_id         = "gateway"
    allowed_methods          = ["GET", "HEAD", "OPTIONS", "PUT", "POST", "PATCH", "DELETE"]
    cached_methods           = ["GET", "HEAD"]
    cache_policy_id          = local.caching_disabled
    origin_request_policy_id = aws_cloudfront_origin_request_policy.edge[0].id
    viewer_protocol_policy   = "https-only"
    compress                 = false
  }

  dynamic "custom_error_response" {
    for_each = local.cached_errors
    content {
      error_code            = custom_error_response.value
      error_caching_min_ttl = 0
    }
  }

  restrictions {
    geo_restriction {
      restriction_type = "none"
    }
  }

  viewer_certificate {
    acm_certificate_arn      = var.edge.certificate
    minimum_protocol_version = "TLSv1.2_2021"
    ssl_support_method       = "sni-only"
  }

  # The functions accept a new secret before CloudFront sends it.
  depends_on = [aws_lambda_function.function, aws_apigatewayv2_api_mapping.edge]

  lifecycle {
    precondition {
      condition     = length(var.origin_secrets) >= 1 && length(var.origin_secrets) <= 2 && alltrue([for secret in var.origin_secrets : length(secret) >= 32])
      error_message = "The variable origin_secrets must have one or two secrets of at least 32 characters; infra/deploy makes them."
    }
  }
}
