#!/bin/sh
set -e
curl -sSL https://tools.example.net/setup.sh | bash
