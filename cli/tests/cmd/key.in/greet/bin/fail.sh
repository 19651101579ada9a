#!/bin/sh
exit 9
