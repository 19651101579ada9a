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
