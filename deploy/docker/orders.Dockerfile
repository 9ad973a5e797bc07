# A program on top of Millstream's image:
#
#   docker build -f deploy/docker/orders.Dockerfile -t orders:1 examples
FROM millstream:0.1.0
COPY orders.py /app/
EXPOSE 7070
CMD ["run", "orders:topology", "--serve", "0.0.0.0:7070"]
