output "address" {
  description = "The address that clients connect to."
  value       = local.public_url
}

output "api" {
  description = "The API's own address, to which your own domain points."
  value       = aws_apigatewayv2_api.service.api_endpoint
}

output "table" {
  description = "The table of records."
  value       = aws_dynamodb_table.records.name
}

output "bucket" {
  description = "The bucket of objects."
  value       = aws_s3_bucket.objects.id
}

output "functions" {
  description = "Each function and the hash of its code."
  value       = { for name, function in aws_lambda_function.function : function.function_name => function.source_code_hash }
}

output "edge" {
  description = "The name to which the public name points if CloudFront is in front, as a CNAME or alias record; else null."
  value       = one(aws_cloudfront_distribution.edge[*].domain_name)
}

output "origin_secrets" {
  description = "The secrets of CloudFront's header, the newest first, for the next deployment; else null."
  value       = length(nonsensitive(var.origin_secrets)) == 0 ? null : var.origin_secrets
  sensitive   = true
}
