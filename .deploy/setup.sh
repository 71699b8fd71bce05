#!/bin/sh
# Creates the bucket and the schema; run again it changes nothing.
set -eu
python3 - <<'PYTHON'
import time

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from pool_server.settings import PoolSettings

settings = PoolSettings()
client = boto3.client(
    "s3",
    endpoint_url=settings.s3_endpoint_url,
    region_name=settings.s3_region,
    aws_access_key_id=settings.s3_access_key_id.get_secret_value(),
    aws_secret_access_key=settings.s3_secret_access_key.get_secret_value(),
)
for attempt in range(60):
    try:
        names = [bucket["Name"] for bucket in client.list_buckets()["Buckets"]]
        break
    except (BotoCoreError, ClientError):
        if attempt == 59:
            raise
        time.sleep(1)  # the S3 server is starting
if settings.s3_bucket not in names:
    client.create_bucket(Bucket=settings.s3_bucket)
PYTHON
# Its token would stay in the log; "poolctl admin recover" makes the admin's.
poolctl db upgrade >/dev/null
poolctl serve --check
